"""The label-smoothed loss of section 5.4, joined with the projection to the vocabulary and computed piece by piece."""

import torch


# Logits held at one time: enough rows for fast matrix products, few enough to stay near the processor.
_LOGITS_AT_A_TIME = {"cpu": 2**22, "cuda": 2**27}


def linear_cross_entropy(
    states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Sum over rows of the cross-entropy of softmax(states weight^T) against smoothed labels (section 5.4).

    The true label gets probability 1 - eps and eps is spread evenly over the whole vocabulary, so that

        loss = logsumexp(z) - (1 - eps) z[label] - eps mean(z),   z = states weight^T

    The same value and gradients as `cross_entropy(states @ weight.T, labels, label_smoothing=eps, reduction="sum")`,
    but the (tokens, vocabulary) matrix never exists as a whole: a chunk of rows is projected, its loss and its
    gradients are taken at once, and the chunk is forgotten.

    Args:
        states: (tokens, d_model) the decoder's output for the real target tokens.
        weight: (vocabulary, d_model) the output matrix.
        labels: (tokens,) ids of the right tokens.
        label_smoothing: The paper's epsilon_ls, from 0 to below 1.

    Returns:
        A float32 scalar, in nats. It has first derivatives only.
    """
    return _LinearCrossEntropy.apply(states, weight, labels, label_smoothing)


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made in the forward pass, while each chunk's probabilities are at hand."""

    @staticmethod
    def forward(ctx, states, weight, labels, label_smoothing):
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        x, w = states.to(dtype), weight.to(dtype)
        want_states, want_weight = ctx.needs_input_grad[:2]
        grad_states = torch.empty_like(x) if want_states else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if want_weight else None
        loss = torch.zeros((), dtype=torch.float32, device=x.device)
        vocabulary = weight.shape[0]
        rows = max(1, _LOGITS_AT_A_TIME.get(device, 2**24) // vocabulary)
        for start in range(0, x.shape[0], rows):
            chunk = slice(start, start + rows)
            label = labels[chunk, None]  # (rows, 1)
            logits = (x[chunk] @ w.T).float()  # (rows, vocabulary)
            gradient = logits.softmax(dim=1)  # of logsumexp
            # logsumexp(z) = max(z) - log(max(softmax(z))), which saves a second pass of exponentials.
            log_sum_exp = logits.amax(dim=1) - gradient.amax(dim=1).log()  # (rows,)
            loss += log_sum_exp.sum() - (1 - label_smoothing) * logits.gather(1, label).sum()
            if not (want_states or want_weight):
                continue
            gradient.scatter_add_(1, label, torch.full_like(label, label_smoothing - 1, dtype=gradient.dtype))
            gradient = gradient.to(dtype)
            if want_states:
                grad_states[chunk] = gradient @ w
            if want_weight:
                grad_weight += gradient.T @ x[chunk]
        if label_smoothing:
            # - eps mean(z) needs no look at the logits: its value and gradients come from sums of rows.
            share = label_smoothing / vocabulary
            row_sum, state_sum = weight.sum(0, dtype=torch.float32), states.sum(0, dtype=torch.float32)
            loss -= share * (state_sum * row_sum).sum()
            if want_states:
                grad_states -= (share * row_sum).to(dtype)
            if want_weight:
                grad_weight -= share * state_sum
        ctx.save_for_backward(
            grad_states.to(states.dtype) if want_states else None, grad_weight.to(weight.dtype) if want_weight else None
        )
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        scaled = [None if grad is None else grad * grad_output.to(grad.dtype) for grad in ctx.saved_tensors]
        return *scaled, None, None
