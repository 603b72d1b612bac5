"""Message kinds and record keys: the vocabulary of every exchange.

| kind              | server sends                          | client replies                                        |
|-------------------|---------------------------------------|-------------------------------------------------------|
| `query.hello`     | the task                              | key, examples, device, true cluster, code fingerprint |
| `query.describe`  | the task                              | description of its own data: counts, sums, categories |
| `evaluate.losses` | K models                              | K losses, examples, whether it kept the models        |
| `train`           | one model, training settings          | its update, examples, training loss                   |
| `train.select`    | K models, training settings           | the same, the chosen model's index, K losses          |
| `train.estimate`  | one model                             | this client's own estimate, or some of its layers,    |
|                   |                                       | examples, loss                                        |
| `evaluate`        | one model, what to test it on, what   | test loss, accuracy, examples; the same after         |
|                   | to adapt it by before                 | fine-tuning a copy, and on validation data            |
| `query.keys`      | number of the try                     | public keys for masks and shares                      |
| `query.shares`    | members' public keys                  | encrypted shares of its secrets, for each member      |
| `query.unmask`    | members that are alive                | shares of their seeds, and of the others' secret keys |
| `<any>.custom`    | what the strategy likes, and the      | what the handler returns                              |
|                   | import path of a client handler       |                                                       |

A client that has kept the models of `evaluate.losses` is sent with `train` the index of its own instead of the model.
Every reply also tells what it cost the client (`work`).

Models travel in `arrays`, numbers in `metrics`, settings in `config`, under Flower's own names where it has them.
A gradient (`reply=gradient`) has the entries of a model; those that the setting `untrained` names, such as running
statistics, hold their values after the pass in place of a gradient.
"""

import re

HELLO = "query.hello"
DESCRIBE = "query.describe"
LOSSES = "evaluate.losses"
TRAIN = "train"
TRAIN_SELECT = "train.select"
TRAIN_ESTIMATE = "train.estimate"
EVALUATE = "evaluate"
PARCEL = "query.parcel"
"""Message to a node that hosts several simulated clients, see `wire.parcels`."""
SECURE_KEYS = "query.keys"
SECURE_SHARES = "query.shares"
SECURE_UNMASK = "query.unmask"
"""The exchanges of secure aggregation before and after its training; see `wire.masking`."""
SECURE = frozenset({SECURE_KEYS, SECURE_SHARES, SECURE_UNMASK})
"""These, of which no answer depends on a client's data."""
CUSTOM = "custom"
"""Action of the messages that a handler answers which they name: `train.custom`, `evaluate.custom`, ..."""

ARRAYS = "arrays"
METRICS = "metrics"
CONFIG = "config"
PROBE = "probe"
SCORES = "scores"
"""Record with a test's metrics: further scores, and counts; see `wire.evaluation`."""
TEST_SUMS = "test-sums"
"""In a message, whether sums of the tests are asked for; in its reply their record, see `wire.evaluation`."""
WORK = "work"
"""Record with every reply: what handling the message cost the client; see `task.wire.replies.Work`."""
MASKING = "masking"
"""Record with a `train` message whose reply is to be masked: members' shares, and the form of the sum."""
MASKED = "masked"
COMMON = "common"
GLOBAL = "global"
OWN = "own"
MIX = "mix"
PROTOTYPES = "prototypes"

NUM_EXAMPLES = "num-examples"
SERVER_ROUND = "server-round"
TRAIN_LOSS = "train_loss"
EVAL_LOSS = "eval_loss"
EVAL_ACCURACY = "eval_acc"
TUNED = "tuned_"
"""Prefix of the names of the test results of a copy of the model that was fine-tuned."""
VALIDATED = "validation_"
"""Prefix of the names of results on validation data; fine-tuned: ``tuned_validation_``."""
CHOSEN_MODEL = "model"
STEP_LOSSES = "step-losses"
"""In a message the number of losses of local training that `train` is to report, in its reply these losses."""
HALVINGS = "halvings"
MOST_HALVINGS = 10
"""Times that a client halved its learning rate, because its training diverged; sent where it did."""
SECOND_ORDER = "second-order"
"""Setting that asks for `GRADIENT` and `HESSIAN` of the loss before training, and the record that they come in."""
GRADIENT, HESSIAN = "gradient", "hessian"
LABEL_COUNTS = "label-counts"

# Settings that a message's `config` may hold.
TASK = "task"
SEED = "seed"
DEVICE = "device"
CLIENT_NUMBER = "client-number"
UNNAMED_NUMBER = "unnamed-number"
"""In the first messages, which go to nodes whose keys are not known yet: the number of a node that has no name."""
UNTRAINED = "untrained"
AT_HOME = "at-home"
"""Hash of the parameters that the model freezes, which are not sent; see `florets.task.layers.keep_at_home`."""
BANK = "bank"
MODEL_INDEX = "model-index"
REPLY = "reply"
REPLY_MODEL = "model"
REPLY_GRADIENT = "gradient"
GRADIENT_BATCH = "gradient-batch"
PROXIMAL_MU = "proximal-mu"
FROZEN = "frozen"
HANDLER = "handler"
HANDLERS = "handlers"
LOSS_DATA = "loss-data"
HELD_OUT = "held-out"
LOSS_BATCH = "loss-batch"
BY_ERRORS = "by-errors"
"""Models are compared by the fraction of samples that they classify wrongly, and not by their losses."""
FINE_TUNE_EPOCHS = "fine-tune-epochs"
VALIDATION = "validation"
QUANTISE = "quantise"
QUANTISE_DIGITS = "quantise-digits"
PROFILE_LAYERS = "profile-layers"
PROFILE_RATIO = "profile-ratio"
PROFILE_SEED = "profile-seed"
NUM_FOLDS = "num-folds"
FOLD_SIZE = "fold-size"
FOLD_STEPS = "fold-steps"
FOLD_RATE = "fold-rate"
"""Learning rate on the folds, where it is not the usual one."""
FOLD_CLASSES = "fold-classes"
FOLD_ESTIMATES = "fold-estimates"
"""In addition, the exact estimates of a linear model on the folds are asked for."""
FOLD_WIDTH = "fold-width"
FOLD_SEED = "fold-seed"
ESTIMATE = "estimate"
ESTIMATE_TRAIN = "train"
ESTIMATE_LEAST_SQUARES = "least_squares"
SENT_LAYERS = "sent-layers"
GLOBAL_MU = "global-mu"
ADAPTATION_STEP = "adaptation-step"
"""Size of the gradient step by which a client adapts a model, in `train.adapted` and before a test."""
EXACT_HESSIAN = "exact-hessian"
HEAD = "head"
HEAD_RATE = "head-rate"
PROTOTYPE_LAMBDA = "prototype-lambda"
MIX_RATE = "mix-rate"
MIX_BATCH = "mix-batch"
LOCAL_CLUSTERS = "local-clusters"
FEATURES = "features"
VECTORS = "vectors"
VECTORS_OF = "vectors-of"
CLASSES = "classes"
DIMENSIONS = "dimensions"
PROJECTION_SEED = "projection-seed"
EXACT_PROXIMAL = "exact-proximal"
PRIVACY = "privacy"
"""Setting by which a client clips and noises what leaves it, by the numbers below: `local`, or `RECORDS`."""
RECORDS = "example"
"""Noise hides each single record, not the client."""
PRIVACY_CLIP = "privacy-clip"
PRIVACY_NOISE = "privacy-noise"
PRIVACY_LOSS_NOISE = "privacy-loss-noise"
DECLARED = "privacy-declared-"
"""Before each name of `sampled_noise.Declared`."""

# Array records and their entries in phase 1 of mixed regression.
ESTIMATES = "estimates"
BASES = "bases"
BASIS = "basis"

# Of a masked round.
ATTEMPT = "attempt"
MEMBER = "member"
MEMBERS = "members"
KEYS = "keys"
BOXES = "boxes"
ALIVE = "alive"
BITS = "bits"
LIMIT = "limit"
WEIGHTING = "weighting"

SHARES = "shares"
"""In a message and its reply: a client's share of each of K models, K numbers that sum to 1."""
CLASS_SHARES = "class-shares"
"""In a message: the share of each of C classes in what each of K models is responsible for, model after model."""

# What a client tells of itself.
CLIENT_KEY = "client-key"
CLUSTER = "true-cluster"
FINGERPRINT = "fingerprint"
FLOWER = "flower"
DESCRIPTION = "description"

# In a node's config: of a table that several nodes share, the rows with this value in the owner's column are its own.
ROWS_OF = "rows-of"
# In a node's config: false keeps it from sending sums of its tests.
SHARE_STATISTICS = "share-statistics"
# In a node's config, and in its introduction: what it never sends, see `wire.leaving`.
NEVER_SEND = "never-send"
# In a node's config: its messages are all handled by one process, which can keep models from one to the next.
ONE_PROCESS = "one-process"

NO_CLUSTER = -1
NO_KEY = "-"

DIVERGED = 3.4e38
"""Loss that a client reports of a model that diverged; no finite loss in float32 is larger."""

_BUILT_IN = re.compile(r"florets\.(?:strategies\.[a-z_0-9]+\.client|zoo\.[a-z_0-9]+):[a-z][a-z_0-9]*")


def is_built_in(handler: str) -> bool:
    """Return whether an import path names a client handler of this project, which every node has."""
    return _BUILT_IN.fullmatch(handler) is not None
