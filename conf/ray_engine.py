"""Problems of `engine=ray` and its address, as far as they show without a cluster."""

import re

from florets.conf.schema import Config

_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")


def ray_problems(config: Config) -> list[str]:
    """Return one line per problem; whether the cluster is there shows where the run starts."""
    address, problems = config.ray_address, []
    if address and config.engine != "ray":
        problems.append(f"ray_address={address}: has no effect with engine={config.engine}; add engine=ray.")
    elif "://" in address:
        problems.append(
            f"ray_address={address}: Ray's client protocol is not used; run florets on a node of the cluster, with "
            "ray_address=auto."
        )
    elif address not in ("", "auto") and not _is_address(address):
        problems.append(f"ray_address={address}: must be auto or <host:port>, such as 10.0.0.1:6379.")
    if config.engine == "ray" and config.device != "cpu":
        problems.append(f"device={config.device}: engine=ray computes on CPUs; use device=cpu or engine=local.")
    return problems


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 2**16
