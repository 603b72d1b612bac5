"""`query.hello` and `query.describe`: what a client says of itself before the first round."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.handlers.custom import handler_of
from florets.client_app.node import device_of, num_partitions, partition_id
from florets.task.consent import Refused
from florets.task.fingerprint import code_fingerprint
from florets.task.node_config import answered_by, check_node_config
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.flower import INSTALLED
from florets.task.wire.leaving import named, unanswered
from florets.task.wire.replies import Introduction
from florets.task.wire.sampled_noise import accountants


def hello(client: Client) -> RecordDict:
    """Say who this client is and what it has; bad data and handlers show here, before training."""
    check_node_config(client.context.node_config)
    handlers = client.names(kinds.HANDLERS)
    for handler in handlers:
        handler_of(client, handler)
    if client.hides_records:
        try:
            accountants()
        except ValueError as error:
            # This text may leave a node that noises all that it says: it is not of its data.
            raise Refused(str(error)) from None
    if kinds.AT_HOME in client.config:
        # Building it compares what is not sent.
        client.module  # noqa: B018
    task, nodes = client.task, num_partitions(client.context)
    examples, cluster = 1, kinds.NO_CLUSTER
    # Of another number of simulated nodes than clients, some would have no data: the server refuses all of them.
    if nodes in (0, task.spec.num_clients) or task.is_own:
        # Of very many simulated clients none has its data made for this.
        is_known = task.counts_are_known and client.config.get(kinds.LOSS_DATA) != kinds.HELD_OUT
        examples = task.num_examples_of(partition_id(client.context)) if is_known else client.num_examples
        # Truth is for simulations: a real node tells it only where its owner wrote it into the node config.
        cluster = int(client.context.node_config.get(kinds.CLUSTER, kinds.NO_CLUSTER))
        if nodes and task.spec.num_clusters and not task.is_own:
            cluster = task.cluster_of(partition_id(client.context))
    if kinds.PRIVACY in client.config:
        # Where single records are hidden, how many there are is public.
        examples = examples if client.hides_records else 1
    config = client.context.node_config
    never = ",".join(sorted(named(config.get(kinds.NEVER_SEND, "")) | unanswered(answered_by(config))))
    return pack(
        Introduction,
        key=client.key,
        num_examples=examples,
        device=str(device_of(client.config, client.context)),
        fingerprint=code_fingerprint(tuple(handlers)),
        flower=INSTALLED,
        true_cluster=cluster,
        num_partitions=nodes,
        never_send=never or None,
    )


def describe(client: Client) -> RecordDict:
    """Return the description of this node's data; see `florets.task.data.tables.description` for what leaves it.

    A node that sends no sums of its tests (`share-statistics`) sends none of its columns either.
    """
    if not client.task.is_own:
        raise ValueError("only nodes with data of their own describe them")
    from florets.task.wire.description import pack_description

    found = client.task.description
    return pack_description(client.key, found if client.shares_statistics else found.without_figures())
