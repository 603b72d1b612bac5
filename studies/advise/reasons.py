"""Sentences on what an advice stands on."""

import math

from florets.studies.advise.causes import Reason
from florets.studies.advise.choice import is_below, joined_accuracy, low_sites
from florets.studies.advise.compare import FEW_RECORDS, Difference
from florets.studies.advise.measures import FORMS, amount, named, value
from florets.studies.advise.methods import NAMES
from florets.studies.advise.speech import Speech, departing, p_text, range_of, shift_of, times

_MOST_COLUMNS = 3
_MOST_SITES = 8
_MOST_GROUPS = 5


class Reasons:
    """Sentences of one advice, by what they are about."""

    def __init__(self, speech: Speech) -> None:
        self.speech, self.advice, self.setup = speech, speech.advice, speech.setup
        self.site, self.measure, self.rows = speech.site, speech.measure, speech.rows

    @property
    def all(self) -> list[str]:
        """All of them, the most important first."""
        useless = self._useless() if self.advice.chosen is None else []
        return [
            *useless,
            *self._figures(),
            *self._chance(),
            *self._groups(),
            *self._differences(),
            *self._lone(),
            *self._gain(),
            *self._apart(),
            *self._low(),
        ]

    def _useless(self) -> list[str]:
        """Say that nothing was learned, and what to do about it."""
        advice = self.advice
        criterion = advice.criterion
        best, constant = criterion.figure(advice.judged(advice.best).test), advice.constant.figure(criterion)
        name = NAMES[advice.best.name].format(site=self.site)
        if math.isinf(best) or any(math.isinf(criterion.own(test)) for test in advice.best.test.values()):
            said = [f"Training diverged, also with the best method ({name})."]
        else:
            said = [
                f"The best method ({name}) reaches {named(best, self.measure)} on the test records; the constant "
                f"answer reaches {value(constant, self.measure)}."
            ]
        if advice.evidence.tried:
            said.append(f"Also tried, without success: {', '.join(advice.evidence.tried)}.")
        if advice.evidence.unscaled:
            said.append(
                "The inputs are far from a standard scale: standardise them, by the same numbers at all "
                f"{self.site}s, or give data frames or tables, which are standardised, and images as uint8."
            )
        return [
            *said,
            "Check that the inputs can predict the target, that units and codes agree (`florets check`), and that "
            "there are enough records; then try other inputs or another model (task.model).",
        ]

    def _figures(self) -> list[str]:
        """Say what is expected, and how figures are taken."""
        advice, criterion = self.advice, self.advice.criterion
        if advice.chosen is None:
            return []
        tests = advice.judged(advice.best).test
        constant = advice.constant.figure(criterion)
        versus = f"; the constant answer reaches {value(constant, self.measure)}" if math.isfinite(constant) else ""
        over = "over all records together" if criterion.together else f"mean over {self.site}s"
        said = [f"Expected on new records: {named(criterion.figure(tests), self.measure)} ({over}){versus}."]
        if advice.evidence.tried:
            said.append(
                f"Nothing was better than the constant answer at first; what helped: {advice.evidence.tried[-1]}."
            )
        if criterion.together:
            said.append(
                f"Most {self.site}s have fewer than {FEW_RECORDS} test records, too few for "
                f"{FORMS[self.measure].title} per {self.site}: it is taken over all records together."
            )
        if "train.class_weights=balanced" in self.setup.keys:
            said.append(
                "One class is rare: training weights the classes equally, and methods are compared by AUC."
                if self.measure == "auc"
                else "One class is rare: training weights the classes equally."
            )
        return said

    def _chance(self) -> list[str]:
        """Say in words what p value speaks against groups; small ones need no words."""
        finding = self.advice.finding
        if finding.kind != "none" or finding.p_value is None:
            return []
        often = max(1, round(100 * finding.p_value))
        who = self.site.capitalize()
        return [f"{who}s without any difference would look as different as these in {often} of 100 cases."]

    def _groups(self) -> list[str]:
        finding = self.advice.finding
        if finding.kind != "groups" or self.advice.is_scale:
            return []
        found = [self.speech.named(group) for group in finding.groups]
        said = []
        if len(found) <= _MOST_GROUPS:
            said.append(f"The groups: {' | '.join(found)}.")
        if self.advice.chosen == "fedavg":
            said.append("One model serves them as well as one per group does.")
        elif self.advice.chosen == "intercept":
            said.append(f"An intercept per {self.site} says more than the groups do.")
        return said

    def _differences(self) -> list[str]:
        """Say in which respects sites differ, one explanation for each: standardising first, then groups."""
        advice = self.advice
        said = []
        after = advice.evidence.standardised
        if advice.is_scale and after is not None:
            who = self.speech.named(departing(advice))
            said.append(
                f"What sets {who} apart is the scale of the inputs: once each {self.site} standardises its own "
                f"inputs the difference is gone ({p_text(after.p_value)}). Look for other units "
                "or instruments, and declare them (scale in node.toml)."
            )
        for reason in advice.evidence.reasons:
            said += self._reason(reason)
        if (
            not advice.is_scale
            and after is not None
            and after.p_value is not None
            and advice.finding.kind == "groups"
        ):
            said.append(f"Standardising the inputs per {self.site} does not remove the groups.")
        return said

    def _reason(self, reason: Reason) -> list[str]:
        who = self.speech.named(reason.sites)
        their = "its" if len(reason.sites) == 1 else "their"
        have = "has" if len(reason.sites) == 1 else "have"
        many = len(reason.sites) > _MOST_SITES
        if reason.kind == "unit" and reason.factor is not None:
            return [
                f"Inputs: all columns of {who} are {times(reason.factor)} those of the other {self.site}s, as "
                "with another unit. Declare the unit (scale in node.toml); the rule may be the same."
            ]
        if reason.kind == "unit":
            columns = ", ".join(
                f"{one.column} (x {one.factor:.3g})" for one in reason.columns[:_MOST_COLUMNS] if one.factor
            )
            return [f"Inputs: {who} {have} {columns} in another unit, it seems. Declare it (scale in node.toml)."]
        if reason.kind == "inputs":
            columns = ", ".join(shift_of(one) for one in reason.columns[:_MOST_COLUMNS])
            whom = f"{len(reason.sites)} {self.site}s have" if many else f"{who} {have}"
            if 2 * len(reason.sites) > self.advice.finding.num_clients:
                # They differ among one another: no column sets all of them apart from the rest.
                return [f"Inputs: {whom} a distribution of their own each, most of all in {columns}."]
            return [f"Inputs: {whom} another distribution than the other {self.site}s, most of all in {columns}."]
        if reason.kind == "labels":
            return [self._label_reason(reason, who, their, many)]
        several = len(self.advice.finding.groups) > 2
        where = f"in the {len(self.advice.finding.groups)} groups" if several else f"at {who}"
        said = f"Rule: the same inputs mean something else {where}"
        if reason.cross is not None:
            other, own = reason.cross
            whose = "the best model of another group" if several else "the other group's model"
            said += f": {whose} has a loss of {other:.3g} there, {their} own {own:.3g}"
        return [f"{said}.", *self._swapped()]

    def _class(self, label: int | None) -> str:
        names = self.advice.evidence.classes
        return names[label] if label is not None and label < len(names) else str(label)

    def _label_reason(self, reason: Reason, who: str, their: str, many: bool) -> str:
        values = sorted(reason.shares.values())
        if self.speech.is_regression:
            shown = range_of(values, "{:.3g}")
            where = f"{len(values)} {self.site}s" if many else who
            return f"Target: its mean at {where} is {shown}, and {reason.elsewhere:.3g} at the others."
        shown = range_of([100 * share for share in values], "{:.0f}")
        where = f"{len(values)} {self.site}s" if many else who
        said = (
            f"Labels: class {self._class(reason.label)} is {shown} % of the records of {where}, and "
            f"{100 * reason.elsewhere:.0f} % elsewhere."
        )
        kinds = {one.kind for one in self.advice.evidence.reasons}
        if kinds & {"inputs", "unit"}:
            return said
        return f"{said} {their.capitalize()} inputs differ no more than these shares explain."

    def _swapped(self) -> list[str]:
        """Say whose labels may be coded the other way round: of two classes one model then takes the wrong one."""
        advice, together = self.advice, self.advice.outcome("fedavg")
        counts = [own for own in (together.train.values() if together else ()) if len(own) == 2]
        if together is None or not counts:
            return []
        said = []
        for group in advice.finding.groups:
            joined = joined_accuracy(together, group)
            if joined is not None and is_below(*joined, 0.5):
                said.append(
                    f"One model for all is wrong on most records of {self.speech.named(group)} "
                    f"({100 * joined[0]:.1f} % correct). This is how labels look that are coded the other way "
                    "round: compare the codes."
                )
        return said

    def _lone(self) -> list[str]:
        advice = self.advice
        if advice.finding.kind not in ("groups", "lone", "all_differ") or advice.is_scale:
            return []
        said = []
        bad = advice.own_is_low
        good = [key for key in advice.finding.lone if key not in bad]
        alone = advice.outcome("local")
        if bad:
            own = "its own" if len(bad) == 1 else "their own"
            figures = ""
            if alone is not None:
                others = value(advice.criterion.figure(advice.judged(alone).test), self.measure)
                figures = f" ({self.speech.of_sites(alone, bad)} alone, {others} elsewhere)"
            said.append(
                f"No model predicts the records of {self.speech.named(bad)}, not even {own}{figures}. Look for "
                "mistakes there, such as labels that do not belong to their records. Figures are of the other "
                f"{self.site}s."
            )
        badly = [] if alone is None else low_sites(alone, advice.criterion)
        scarce = [key for key in good if key in badly]
        if scarce:
            said.append(
                f"{self.speech.named(scarce)} {'differs' if len(scarce) == 1 else 'differ'} from the others, and a "
                "model trained there alone does badly; it takes more records to say why."
            )
        apart = [key for key in good if key not in scarce and self.speech.needs_own_rule(key)]
        served = [key for key in good if key not in scarce and key not in apart]
        if apart:
            follows = "follows" if len(apart) == 1 else "follow"
            said.append(
                f"{self.speech.named(apart)} {follows} another rule than the others: other codes, other patients, "
                "or mistakes in the records. Compare the definitions; until then a separate model is the way."
            )
        if served:
            their = "its" if len(served) == 1 else "their"
            said.append(
                f"{self.speech.named(served)}: one model for all predicts {their} records as well as {their} own "
                "model does, although training there takes another direction. No rule of another kind was shown."
            )
        return said

    def _gain(self) -> list[str]:
        advice = self.advice
        if advice.chosen is None:
            return []
        shown = {
            "fedavg": "One model for all",
            "discovery": "One model per group",
            "two_groups": "Two groups regardless",
            "local": f"Each {self.site} alone",
            "standardised": "Standardised inputs",
        }
        if advice.finding.kind == "lone" and advice.own_is_low == advice.finding.lone:
            shown["discovery"] = f"Training without {self.speech.named(advice.finding.lone)}"
        said = []
        for name, subject in shown.items():
            gain = advice.against(name)
            if name == advice.chosen or gain is None or not math.isfinite(gain.mean):
                continue
            said.append(f"{subject}: {self._compared(gain)}.")
        return said

    def _compared(self, gain: Difference) -> str:
        """Return how another method compares, given the chosen one's gain over it."""
        if gain.is_gain:
            return f"worse by {amount(gain.mean, gain.half, self.measure)}"
        if gain.is_loss:
            return f"better by {amount(-gain.mean, gain.half, self.measure)} on the test records"
        return f"no clear difference ({amount(-gain.mean, gain.half, self.measure, sign=True)})"

    def _apart(self) -> list[str]:
        """Name the sites that enter no comparison."""
        advice = self.advice
        said = []
        if one := advice.evidence.one_class:
            have = "has" if len(one) == 1 else "have"
            said.append(
                f"{self.speech.named(one)} {have} records of one class only: nothing there tells the classes apart, "
                f"so {'it takes' if len(one) == 1 else 'they take'} no part in comparisons or the search for groups."
            )
        few = [key for key in advice.few if key not in advice.evidence.one_class]
        if few and len(few) < len(self.rows):
            have = "has" if len(few) == 1 else "have"
            who = f"{len(few)} {self.site}s" if len(few) > _MOST_SITES else self.speech.named(few)
            said.append(
                f"{who} {have} fewer than {FEW_RECORDS} test records; {'its' if len(few) == 1 else 'their'} own "
                "figures are mostly noise and enter no comparison."
            )
        return said

    def _low(self) -> list[str]:
        advice = self.advice
        low = [key for key in advice.low if key not in (*advice.finding.lone, *advice.criterion.apart)]
        if not low or advice.chosen is None:
            return []
        return [
            f"{self.speech.named(low)}: the advised model does worse here than elsewhere, by more than chance "
            f"({self.speech.of_sites(advice.best, low)})."
        ]
