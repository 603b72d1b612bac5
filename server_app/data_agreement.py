"""Agreement on nodes' own data before a run: the sites describe them, the configuration is completed from that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from florets.conf.problems import ConfigError
from florets.conf.run_config import task_spec
from florets.conf.schema import AUTO, Config, as_plain
from florets.conf.validate import find_problems
from florets.reports.console import counted
from florets.server_app.data_findings import find
from florets.server_app.own_data import OwnData, is_declared, is_own, not_described, table_of
from florets.strategies.base.federation import Federation, FederationError, ask_nodes, client_key
from florets.strategies.base.report import named
from florets.task.data.array_scale import ArrayScale
from florets.task.data.tables.agreement import Agreed, agree, as_options, last_column
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import Description
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.node_config import CLIENT_ID, DATA_DIR, shares_statistics
from florets.task.randomness import client_number
from florets.task.settings import of_values, scales_targets
from florets.task.spec import DECLARED, TaskSpec
from florets.task.task import Task
from florets.task.wire import kinds
from florets.task.wire.description import read_description


def describe_sites(
    grid: Grid, settings: ConfigRecord, start_timeout: float, min_clients: int | None
) -> dict[str, Description]:
    """Return each site's description of its data, by client key; FederationError where no site describes its data.

    `settings` are the messages' config, with the task. `start_timeout` holds for the nodes, and again for their
    replies; `min_clients` is the number of nodes to wait for, None: whichever are online.
    """
    nodes = Federation(None, start_timeout, min_clients=min_clients).wait_for_nodes(grid)
    infos, answers, replies = ask_nodes(
        grid, nodes, kinds.DESCRIBE, settings, lambda _, content: read_description(content), start_timeout
    )
    found: dict[str, Description] = {}
    # Of two nodes with one key the one that is registered under it holds it, else the one with the lower node id.
    for node, (claimed, description) in sorted(answers.items(), key=lambda one: (not infos[one[0]].name, one[0])):
        found.setdefault(client_key(infos[node], claimed), description)
    if not found:
        raise FederationError(f"no client could start: {replies.failures()}")
    # The others repeat their reason when they introduce themselves.
    return dict(sorted(found.items()))


_DECLARED = "what sites' data have in common is declared: they describe nothing"


def agree_on_data(grid: Grid, config: Config) -> OwnData:
    """Let the sites describe their data, and return what they have in common.

    ConfigError if the data do not fit together, or the strategy does not suit them; else as `describe_sites`.
    """
    if not is_own(config):
        return not_described(config)
    if is_declared(config):
        return _declared(config)

    def describe(spec: TaskSpec) -> dict[str, Description]:
        settings = ConfigRecord({kinds.TASK: spec.to_json(), kinds.SEED: config.seed, kinds.DEVICE: config.device})
        return describe_sites(grid, settings, config.start_timeout, config.min_clients)

    sites, found = described(config, describe)
    findings = find(sites, found, {})
    odd = [f"{one.level}: {one}" for one in findings if one.level != "note"]
    own = completed(config, sites, found)
    return replace(own, lines=(*lines(sites, found), *own.lines, *odd), findings=tuple(findings))


def declared_form(config: Config) -> Agreed:
    """Return what nodes' own data have in common where that is declared; see `is_declared`."""
    task, options = config.task, config.task.partition_options
    if not task.table.preprocessing:
        values = bool(task.data_options.get("regression"))
        return Agreed(tuple(options["input_shape"]), options["num_outputs"], values)
    found = Preprocessing.of(task.table.preprocessing)
    shape, outputs = tuple(options.get("input_shape", [found.width])), max(len(found.classes), 1)
    return Agreed(shape, outputs, found.is_regression, preprocessing=found, group=task.table.group)


def _declared(config: Config) -> OwnData:
    return replace(completed(config, {}, declared_form(config)), lines=(_DECLARED,))


def described(
    config: Config, describe: Callable[[TaskSpec], dict[str, Description]], again: bool = False
) -> tuple[dict[str, Description], Agreed]:
    """Return the sites' descriptions of their final training records, and what they have in common.

    `describe` lets all sites describe their data for a task. It is called once more where that is wanted (`again`),
    or a site, before the agreement, had other training records than it will have.
    """
    spec, declared = TaskSpec(**task_spec(config)), declaration_of(config)
    if of_values(config.task.loss):
        spec = replace(spec, data_options={**spec.data_options, "regression": True})
    sites = describe(spec)
    found = agreement(config, declared, sites)
    if not again and not any(_has_other_records(site, found) for site in found.taking_part(sites).values()):
        return sites, found
    second = describe(agreed_spec(config, sites, found))
    # A site that cannot take part has said why.
    sites = {key: second.get(key, site) for key, site in sites.items() if key in second or key in found.left_out}
    regression = declared.regression if declared.classes else found.is_regression
    declared = replace(declared, group=found.group, regression=regression)
    # The second time what the first one found is declared.
    return sites, replace(agreement(config, declared, sites), target_why=found.target_why)


def _has_other_records(site: Description, found: Agreed) -> bool:
    """Return whether a site described other records than those that follow from the agreement."""
    if site.unseen:
        return True
    if site.form != "table" or found.preprocessing is None:
        return False
    names = {column.name for column in site.columns}
    group = found.group if found.group in (site.group, *names) else ""
    return site.regression is not None and (site.group, site.regression) != (group, found.is_regression)


def task_of(node: Mapping[str, Any], spec: TaskSpec) -> Task:
    """Return the task of a node in this process, by its node config."""
    rows_of = node.get(kinds.ROWS_OF)
    own = spec.at_node(str(node[DATA_DIR]), None if rows_of is None else str(rows_of))
    return Task(own, client_number(str(node[CLIENT_ID])))


def describe_here(
    nodes: Sequence[Mapping[str, Any]], spec: TaskSpec, failed: dict[str, str]
) -> dict[str, Description]:
    """Return the description of each node's data in this process; `failed` gets why others cannot be read."""
    sites: dict[str, Description] = {}
    for node in nodes:
        key = str(node[CLIENT_ID])
        try:
            found = task_of(node, spec).description
            sites[key] = found if shares_statistics(node) else found.without_figures()
        except ValueError as error:
            failed[key] = str(error)
    if not sites:
        raise ConfigError([f"{key}: {reason}" for key, reason in failed.items()])
    return sites


def agree_here(config: Config, nodes: Sequence[Mapping[str, Any]]) -> OwnData:
    """Return what nodes' data in this process have in common, for commands that look at a run without one.

    ConfigError if no node's data can be read, or they do not fit together.
    """
    if not is_own(config):
        return not_described(config)
    if is_declared(config):
        return _declared(config)
    return completed(config, *described(config, lambda spec: describe_here(nodes, spec, {})))


def declaration_of(config: Config) -> Declaration:
    """Return what a configuration declares of tables; raise ConfigError where that contradicts itself."""
    try:
        declared = Declaration.of(TaskSpec(**task_spec(config)).table.get(DECLARED, {}))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return replace(declared, regression=True) if of_values(config.task.loss) else declared


def agreement(config: Config, declared: Declaration, sites: Mapping[str, Description]) -> Agreed:
    """Return what the sites have in common; raise ConfigError where they do not fit together."""
    options = config.task.partition_options
    try:
        found = agree(
            declared,
            sites,
            config.task.data_options.get("classes"),
            options.get("input_shape", ()),
            options.get("num_outputs", 0),
        )
        # A check of declared tables: who fits is known from descriptions.
        if not config.task.table.preprocessing:
            keeps_unit = found.is_regression and not scales_targets(_loss_of(config, found))
            return _unscaled(found) if keeps_unit else found
        return replace(declared_form(config), left_out=found.left_out)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _loss_of(config: Config, found: Agreed) -> str:
    """Return the loss that is trained: of values of which nothing was said the squared error."""
    loss = config.task.loss
    return "squared_error" if found.is_regression and loss == "cross_entropy" else loss


def _unscaled(found: Agreed) -> Agreed:
    """Return the same with targets as they came: of another loss than a squared error their unit is a part."""
    scale, prepared = found.scale, found.preprocessing
    return replace(
        found,
        scale=None if scale is None else replace(scale, target_mean=0.0, target_std=1.0),
        preprocessing=None if prepared is None else replace(prepared, target_mean=0.0, target_std=1.0),
    )


def completed(config: Config, sites: Mapping[str, Description], found: Agreed) -> OwnData:
    """Return the configuration with what was found: shape, classes, loss; and how tables are prepared.

    ConfigError if the configuration does not suit the data that were found.
    """
    asked, config = as_plain(config), _with_found(config, sites, found)
    if problems := find_problems(config):
        raise ConfigError(problems)
    prepared = found.preprocessing
    guessed = () if prepared is None or config.task.table.target else (last_column(prepared.target),)
    return OwnData(config, table_of(config, prepared), sites, guessed, asked=asked)


def agreed_spec(config: Config, sites: Mapping[str, Description], found: Agreed) -> TaskSpec:
    """Return the task as the sites get it once they have agreed, of which they may describe their data again."""
    config = _with_found(config, sites, found)
    spec = TaskSpec(**task_spec(config))
    # An empty list counts as well: until they agree, sites go by the classes that they train on themselves.
    untrained = {"untrained": list(found.untrained)} if any(site.trained for site in sites.values()) else {}
    options = {**spec.data_options, **untrained}
    return replace(spec, data_options=options, table=table_of(config, found.preprocessing))


def _with_found(config: Config, sites: Mapping[str, Description], found: Agreed) -> Config:
    task = config.task
    if found.num_targets and task.loss == "cross_entropy":
        raise ConfigError(
            f"task.loss=cross_entropy: needs one class a sample, and the targets are {found.num_targets} numbers "
            "each; use binary_cross_entropy where a sample has several labels, or squared_error; of one column per "
            "class with a single 1 give y.argmax(axis=1)."
        )
    options = {**task.data_options}
    has_arrays = any(site.form != "table" for site in sites.values())
    if has_arrays and found.classes:
        options["classes"] = list(found.classes)
    if found.is_regression:
        options["regression"] = True
    # An autoencoder's targets are its inputs, on the scale that its last layer has.
    if found.scale is not None and task.loss != "reconstruction":
        options.setdefault("scale", found.scale.to_plain())
    if found.untrained:
        options["untrained"] = list(found.untrained)
    model, model_options = task.model, dict(task.model_options)
    if model == AUTO:
        model = "mlp"
        if found.preprocessing is not None:
            model_options.setdefault("hidden", [])
    regression = True if found.is_regression else task.table.regression
    table_config = replace(task.table, group=found.group or task.table.group, regression=regression)
    task = replace(
        task,
        data_options=options,
        model=model,
        model_options=model_options,
        partition_options={**task.partition_options, **as_options(found)},
        loss=_loss_of(config, found),
        table=table_config,
    )
    return replace(config, task=task)


def lines(sites: Mapping[str, Description], found: Agreed) -> list[str]:
    """Return what the sites that take part have in common, in a few lines for the user."""
    sites = found.taking_part(sites)
    records = sum(site.records for site in sites.values())
    each = named([f"{key} ({site.records})" for key, site in sites.items()])
    said = [f"{counted(len(sites), 'site')}, {records} records: {each}"]
    prepared = found.preprocessing
    if prepared is None:
        what = "values" if found.is_regression else f"{found.num_outputs} classes"
        scaled = found.scale or ArrayScale()
        by_all = ", standardised by the pooled mean and spread" if scaled.mean else ""
        if found.is_regression and scaled.target_std != 1:
            what += f" (mean {scaled.target_mean:.4g}, spread {scaled.target_std:.4g}), standardised"
        return [*said, f"inputs of shape {list(found.input_shape)}{by_all}; targets: {what}"]
    names = [column.name for column in prepared.numeric] + [
        f"{one.name} (categories)" for one in prepared.categorical
    ]
    said.append(f"inputs: {named(names)}; {prepared.width} numbers, standardised by the pooled mean and spread")
    if clipped := [column.name for column in prepared.numeric if column.low is not None]:
        said.append(f"heavy tails, clipped at about their pooled 0.1 and 99.9 % quantiles: {named(clipped)}")
    why = f", {found.target_why}" if found.target_why else ""
    if prepared.is_regression:
        figures = f" (mean {prepared.target_mean:.4g}, spread {prepared.target_std:.4g})"
        said.append(f"target: {prepared.target}, a value{'' if prepared.target_std == 1 else figures}{why}")
    else:
        targets = [site.target for site in sites.values() if site.target]
        counts = {name: sum(target.classes.get(name, 0) for target in targets) for name in prepared.classes}
        total = max(sum(counts.values()), 1)
        # Sites do not count a class of few records by its name.
        shares = [f"{name} ({100 * count / total:.1f} %)" if count else name for name, count in counts.items()]
        said.append(f"target: {prepared.target}, classes {named(shares)}{why}")
    return said
