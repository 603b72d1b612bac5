"""A convolutional network for texts that are sequences of tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("text_cnn")
def text_cnn(
    input_shape: tuple[int, ...],
    num_outputs: int,
    tokens: int = 20_002,
    embedding: int = 100,
    filters: int = 100,
    kernels: list[int] | None = None,
    dropout: float = 0.8,
) -> nn.Module:
    """Embedding, convolutions of several lengths with ReLU and the maximum over the text, one linear layer; logits.

    Parameters
    ----------
    input_shape
        (length,): tokens of one text, integers from 0 of which 0 pads.
    num_outputs
        Number of classes.
    tokens
        Different tokens that there may be: the words of data ``ag_news`` and 2.
    embedding
        Numbers that stand for one token.
    filters
        Output channels of each convolution.
    kernels
        Tokens that a convolution looks at, one entry for each of them; [3, 4, 5] by default.
    dropout
        Fraction of the features that a training step leaves out, in [0, 1).

    Raises
    ------
    ValueError
        If the inputs are no texts, or shorter than a convolution, or an option is out of its range.

    Source: CLoVE, App. C; TextCNN of the published code.
    Deviation: that code has as many outputs as clusters (6) where the texts have 4 labels, a logarithm of softmax
    more than needed, and 32,000 tokens of which its data use 20,002.
    """
    lengths = [3, 4, 5] if kernels is None else kernels
    if len(input_shape) != 1:
        raise ValueError(f"model text_cnn needs texts of shape (length,), but one input has shape {input_shape}.")
    if not lengths or min(*lengths, tokens, embedding, filters) < 1 or not 0 <= dropout < 1:
        raise ValueError(
            f"task.model_options tokens={tokens} embedding={embedding} filters={filters} kernels={lengths} "
            f"dropout={dropout}: all must be at least 1, with one kernel or more, and the dropout in [0, 1)."
        )
    if input_shape[0] < max(lengths):
        raise ValueError(
            f"texts of {input_shape[0]} tokens are too short for task.model_options.kernels={lengths}: raise "
            "task.data_options.length, or give shorter kernels."
        )
    return TextCnn(tokens, embedding, filters, lengths, dropout, num_outputs)


class TextCnn(nn.Module):
    """See `text_cnn`."""

    def __init__(
        self, tokens: int, embedding: int, filters: int, kernels: Sequence[int], dropout: float, num_outputs: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, kernel) for kernel in kernels)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(filters * len(kernels), num_outputs)
        with_head(self, "linear")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, num_outputs) of tokens (n, length), which come as float32.

        Raises
        ------
        ValueError
            If there is a token that the embedding does not have.
        """
        found = x.long()
        # A question about values has no place in an exported program, whose embedding refuses the token as well.
        if not torch.compiler.is_exporting() and len(found) and int(found.max()) >= self.embedding.num_embeddings:
            raise ValueError(
                f"a text has token {int(found.max())}, but task.model_options.tokens="
                f"{self.embedding.num_embeddings}: it must be task.data_options.words + 2 at least."
            )
        embedded = self.embedding(found).transpose(1, 2)
        # The maximum first: ReLU then has a length-th of the work, and the same result.
        features = [torch.relu(convolution(embedded).amax(dim=2)) for convolution in self.convolutions]
        return self.linear(self.dropout(torch.cat(features, dim=1)))  # type: ignore[no-any-return]  # torch's Any
