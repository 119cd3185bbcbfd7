"""The label-smoothed loss of section 5.4, joined with the projection to the vocabulary and computed piece by piece.

Also R-Drop, which adds the divergence between two passes of the same pairs with different dropout, and guided
alignment, which adds the divergence of the attention from a given one.
"""

import math

import torch
from torch.nn import functional as F
from transformers.utils import ModelOutput

from .linear_vanilla_transformer import type_of_products


# Logits held at one time. Every chunk adds to the gradient of the whole output matrix, so small ones are slow.
LOGITS_AT_A_TIME = {"cpu": 2**24, "cuda": 2**27}
# The most rows of a chunk in 16 bits on a CPU. The CPU's caches hold more of a small chunk, and oneDNN compiles code
# for each size of chunk, so there should be few sizes. For the gain see docs/explanation/fast.md.
_ROWS_OF_CPU_CHUNK = 512
# On a CPU, R-Drop's divergence is computed for about this many logits at a time: its many passes over them stay in the
# processor's cache. For the gain see docs/explanation/fast.md.
_LOGITS_OF_DIVERGENCE = 2**18
# The logarithm of a probability below this is unreliable: float32 soon runs out of smaller numbers.
_SMALL = 1e-30


def twice(inputs: dict, batch: int) -> dict:
    """R-Drop's input in place of a batch x: [x; x], which dropout turns into two different passes.

    Args:
        inputs: Arguments of a forward pass. Tensors with `batch` rows are repeated, in tuples and outputs too.
        batch: Number of pairs.

    Raises:
        ValueError: The inputs include a cache.
    """
    if inputs.get("past_key_values") is not None:
        raise ValueError("A training pass with r_drop_alpha takes no past_key_values: set config.r_drop_alpha to 0.")

    def repeated(value):
        if isinstance(value, ModelOutput):
            return type(value)(**{name: repeated(each) for name, each in value.items()})
        if isinstance(value, tuple):
            return tuple(map(repeated, value))
        has_pairs = isinstance(value, torch.Tensor) and value.shape[:1] == (batch,)
        return torch.cat((value, value)) if has_pairs else value

    return {name: repeated(value) for name, value in inputs.items()}


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0, r_drop_alpha: float = 0.0
) -> torch.Tensor:
    """The sum that [`linear_cross_entropy`] returns, from logits that are held in full.

    Args:
        logits: (..., vocabulary); with R-Drop the first half is the first pass, the second half the second.
        labels: (...) ids of the right tokens, -100 for those that do not count.
        label_smoothing: The paper's epsilon_ls, from 0 to below 1.
        r_drop_alpha: Weight of R-Drop; 0 for a single pass.
    """
    logits, labels = logits.flatten(0, -2).float(), labels.flatten()
    loss = F.cross_entropy(logits, labels, ignore_index=-100, label_smoothing=label_smoothing, reduction="sum")
    if not r_drop_alpha:
        return loss
    log_p, log_q = logits.log_softmax(dim=1).chunk(2)
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=1)  # KL(p || q) + KL(q || p) of each token
    weights = r_drop_alpha / 4 * (labels.chunk(2)[0] != -100)  # not a factor of the sum: torch.func makes it float64
    return loss / 2 + (weights * divergence).sum()


def guided_alignment_loss(log_attention: torch.Tensor, alignment: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of attention against a given alignment A, summed over tokens, in nats.

        loss = - sum_ji A_ji log a_ji

    It is added to the loss of the tokens (Chen et al. 2016, https://arxiv.org/abs/1607.01628; its weight is part of A
    here). As in Garg et al. 2019 (https://arxiv.org/abs/1909.02074) one head learns it.

    Args:
        log_attention: (passes * batch, target, source) log a. The loss is the mean of the passes (R-Drop has two).
        alignment: (batch, target, source) A, for each token of the target from the one that it is predicted to be.
    """
    passes = log_attention.unflatten(0, (-1, len(alignment)))  # (passes, batch, target, source)
    return -(alignment * passes).sum() / len(passes)


def linear_cross_entropy(
    states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    r_drop_alpha: float = 0.0,
    padded: bool = False,
) -> torch.Tensor:
    """Sum over rows of the cross-entropy of softmax(states weight^T) against smoothed labels (section 5.4).

    The true label gets probability 1 - eps and eps is spread evenly over the whole vocabulary, so that

        loss = logsumexp(z) - (1 - eps) z[label] - eps mean(z),   z = states weight^T

    The same value and gradients as `cross_entropy(states @ weight.T, labels, label_smoothing=eps, reduction="sum")`,
    but the (tokens, vocabulary) matrix never exists as a whole: a chunk of rows is projected, its loss and its
    gradients are computed at once, and the chunk is discarded.

    R-Drop (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks") passes every pair twice. Dropout makes
    two distributions p and q for each token. With the above loss of each, CE(p) and CE(q), this returns

        loss = 1/2 (CE(p) + CE(q)) + alpha/2 * 1/2 (KL(p || q) + KL(q || p))

    with gradients through both p and q. That is half the loss of the paper, CE(p) + CE(q) + alpha/2 (KL(p || q) +
    KL(q || p)), whose fairseq code divides it by the tokens of one pass as here. So alpha means the same, Adam does not
    see the factor, and with equal passes the loss is that of a single one.

    Args:
        states: (tokens, d_model) the decoder's output for the real target tokens; with R-Drop (2 tokens, d_model), all
            tokens of the first pass and then, in the same order, of the second.
        weight: (vocabulary, d_model) the output matrix.
        labels: (tokens,) ids of the right tokens; with R-Drop (2 tokens,), those of either pass.
        label_smoothing: The paper's epsilon_ls, from 0 to below 1.
        r_drop_alpha: alpha, 5 in the paper's translation experiments; 0 for a single pass.
        padded: Whether labels may be -100, for rows that do not count. Taking these rows out first is less work, but
            only the device knows how many are left, and the host would have to wait for it.

    Returns:
        A float32 scalar, in nats. It has first derivatives only.
    """
    if not torch.is_grad_enabled():  # otherwise the function below, which cannot see that, would compute gradients
        states, weight = states.detach(), weight.detach()
    return _LinearCrossEntropy.apply(states, weight, labels, label_smoothing, r_drop_alpha, padded)


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made in the forward pass, while each chunk's probabilities are at hand."""

    @staticmethod
    def forward(ctx, states, weight, labels, label_smoothing, r_drop_alpha, padded):
        device, dtype = states.device.type, type_of_products(states)
        passes = 2 if r_drop_alpha else 1  # the loss is the mean over them
        x, w, labels = states.to(dtype).unflatten(0, (passes, -1)), weight.to(dtype), labels.unflatten(0, (passes, -1))
        tokens, vocabulary = x.shape[1], weight.shape[0]
        rows = max(1, LOGITS_AT_A_TIME.get(device, 2**24) // (passes * vocabulary))
        if device == "cpu" and dtype != torch.float32 and passes * tokens > _ROWS_OF_CPU_CHUNK:
            rows = min(rows, _ROWS_OF_CPU_CHUNK // passes)
            rows = min(rows, 64 * math.ceil(tokens / math.ceil(tokens / rows) / 64))  # chunks of one size
            padded, missing = True, -tokens % rows
            x, labels = F.pad(x, (0, 0, 0, missing)), F.pad(labels, (0, missing), value=-100)
        hidden = labels == -100 if padded else None  # (passes, tokens)
        labels = labels.clamp(min=0) if padded else labels
        want_states, want_weight = ctx.needs_input_grad[:2]
        grad_states = torch.empty_like(x) if want_states else None  # (passes, tokens, d_model)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if want_weight else None
        loss = torch.zeros((), dtype=torch.float32, device=x.device)
        for start in range(0, x.shape[1], rows):
            chunk = slice(start, start + rows)
            piece = x[:, chunk].flatten(0, 1)
            logits = (piece @ w.T).unflatten(0, (passes, -1))  # (passes, rows, vocabulary); then their gradient
            part = max(1, _LOGITS_OF_DIVERGENCE // vocabulary) if device == "cpu" and passes == 2 else rows
            parts = (each.split(part, dim=1) for each in (logits, x[:, chunk], labels[:, chunk, None]))
            found = [_differentiate(*each, w, label_smoothing, r_drop_alpha) for each in zip(*parts, strict=True)]
            of_label, log_sum_exp, divergence = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
            if padded:
                of_none = hidden[:, chunk, None]
                of_label, log_sum_exp = (each.masked_fill(of_none, 0) for each in (of_label, log_sum_exp))
                divergence, piece = divergence.masked_fill(of_none[:1], 0), piece.masked_fill(of_none.flatten(0, 1), 0)
            loss += (log_sum_exp.sum() - (1 - label_smoothing) * of_label.sum()) / passes
            if r_drop_alpha:
                loss += r_drop_alpha / 4 * divergence.sum()
            if want_states:
                grad_states[:, chunk] = logits @ w
            if want_weight and dtype == torch.float32:
                grad_weight.addmm_(logits.flatten(0, 1).T, piece)
            elif want_weight:
                grad_weight += logits.flatten(0, 1).T @ piece
        if label_smoothing:
            # - eps mean(z) needs no look at the logits: its value and gradients come from sums of rows.
            share = label_smoothing / (passes * vocabulary)
            real = states.masked_fill(hidden[:, :tokens].reshape(-1, 1), 0) if padded else states
            row_sum, state_sum = weight.sum(0, dtype=torch.float32), real.sum(0, dtype=torch.float32)
            loss -= share * (state_sum * row_sum).sum()
            if want_states:
                grad_states -= (share * row_sum).to(dtype)
            if want_weight:
                grad_weight -= share * state_sum
        if padded and want_states:
            grad_states.masked_fill_(hidden[..., None], 0)
        ctx.save_for_backward(
            grad_states[:, :tokens].flatten(0, 1).to(states.dtype) if want_states else None,
            grad_weight.to(weight.dtype) if want_weight else None,
        )
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        scaled = [None if grad is None else grad * grad_output.to(grad.dtype) for grad in ctx.saved_tensors]
        return *scaled, None, None, None, None


def _differentiate(
    logits: torch.Tensor,
    x: torch.Tensor,
    label: torch.Tensor,
    w: torch.Tensor,
    label_smoothing: float,
    r_drop_alpha: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The terms that a chunk's logits add to the loss. Their gradient, without the smoothing's share, replaces them.

    Args:
        logits: (passes, rows, vocabulary) x w^T.
        x: (passes, rows, d_model) the states.
        label: (passes, rows, 1)
        w: (vocabulary, d_model) the output matrix.
        label_smoothing: As in `linear_cross_entropy`.
        r_drop_alpha: As in `linear_cross_entropy`.

    Returns:
        The logits of the labels (passes, rows, 1), the logsumexp of all logits (passes, rows, 1), and with two passes
        KL(p || q) + KL(q || p) (1, rows, 1), else zeros.
    """
    passes = len(logits)
    z = [each.float() for each in logits]  # softmax overwrites these: the logits themselves in float32, else copies
    difference = z[0] - z[1] if passes == 2 else None
    of_label = torch.stack([each.gather(1, ids) for each, ids in zip(z, label, strict=True)])
    log_sum_exp = torch.stack([_softmax_(*each, w) for each in zip(z, x, label, of_label, strict=True)])
    if difference is None:
        divergence = torch.zeros_like(of_label)
    else:
        divergence = _add_divergence_(*z, difference, r_drop_alpha)[None]
    for gradient, ids, place in zip(z, label, logits, strict=True):
        gradient.scatter_add_(1, ids, gradient.new_full(ids.shape, (label_smoothing - 1) / passes))
        if place.dtype != torch.float32:
            place.copy_(gradient)
    return of_label, log_sum_exp, divergence


def _softmax_(logits, x, label, of_label, w) -> torch.Tensor:
    """Turns the logits (rows, vocabulary) into probabilities and returns their logsumexp (rows, 1)."""
    if logits.device.type != "cpu":
        # logsumexp(z) = max(z) - log(max(softmax(z))), which saves a second pass of exponentials.
        highest = logits.amax(dim=1, keepdim=True)
        softmax = torch.softmax(logits, dim=1, out=logits)
        return highest - softmax.amax(dim=1, keepdim=True).log()
    # The same with the label in place of the maximum saves two more passes, unless its probability is too small.
    softmax = torch.softmax(logits, dim=1, out=logits)
    probability = softmax.gather(1, label)
    log_sum_exp = of_label - probability.log()
    unlikely = (probability < _SMALL)[:, 0]
    if unlikely.any():
        log_sum_exp[unlikely] = (x[unlikely] @ w.T).float().logsumexp(dim=1, keepdim=True)
    return log_sum_exp


def _add_divergence_(p, q, difference, alpha) -> torch.Tensor:
    """R-Drop's divergence KL(p || q) + KL(q || p) (rows, 1); its gradient and half that of logsumexp replace p and q.

    With d = z_p - z_q, the logits' difference, KL(p || q) + KL(q || p) = sum (p - q) d = E_p[d] - E_q[d]: the rest of
    log p - log q is the same for the whole vocabulary and cancels. Its gradients are p (d - E_p[d]) + p - q by z_p and
    q (E_q[d] - d) + q - p by z_q.

    Args:
        p: (rows, vocabulary) probabilities of the first pass.
        q: (rows, vocabulary) probabilities of the second.
        difference: (rows, vocabulary) d; it is overwritten.
        alpha: Weight of R-Drop.
    """
    # Not as dot products, which autocast would compute in 16 bits.
    mean_p, mean_q = ((each * difference).sum(dim=1, keepdim=True) for each in (p, q))  # (rows, 1)
    quarter = alpha / 4
    difference *= quarter
    own = 0.5 + quarter
    of_p = p * (difference - (quarter * mean_p - own)) - quarter * q
    q *= (quarter * mean_q + own) - difference
    q -= quarter * p
    p.copy_(of_p)
    return mean_p - mean_q
