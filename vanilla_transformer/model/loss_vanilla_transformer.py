"""The label-smoothed loss of section 5.4, joined with the projection to the vocabulary and computed piece by piece."""

import torch
from torch import nn
from torch.nn.modules import module as module_globals


# Logits held at one time. Every chunk adds to the gradient of the whole output matrix, so small ones are slow.
_LOGITS_AT_A_TIME = {"cpu": 2**24, "cuda": 2**27}
# A probability whose logarithm is not to be trusted: float32 soon has no smaller numbers.
_SMALL = 1e-30


def is_its_weights(layer: nn.Module) -> bool:
    """Whether a layer does no more than its matrix says, so that the matrix may be used without calling the layer.

    Adapters (LoRA and its kin), quantised layers, subclasses and parametrised layers are of another type; quantised
    matrices are parameters of another type; then there are hooks. All of those must be called.
    """
    hooks = layer._forward_pre_hooks or layer._forward_hooks or "forward" in vars(layer)
    hooks = hooks or module_globals._global_forward_hooks or module_globals._global_forward_pre_hooks
    parameters = (parameter for parameter in layer._parameters.values() if parameter is not None)
    return type(layer) is nn.Linear and not hooks and all(type(each) is nn.Parameter for each in parameters)


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
            of_label, log_sum_exp, gradient = _project(x[chunk], w, label)
            loss += log_sum_exp.sum() - (1 - label_smoothing) * of_label.sum()
            if not (want_states or want_weight):
                continue
            gradient.scatter_add_(1, label, torch.full_like(of_label, label_smoothing - 1))
            gradient = gradient.to(dtype)
            if want_states:
                torch.mm(gradient, w, out=grad_states[chunk])
            if want_weight and dtype == torch.float32:
                grad_weight.addmm_(gradient.T, x[chunk])
            elif want_weight:
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


def _project(x, w, label) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The label's logit (rows, 1), logsumexp (rows, 1) of all logits, and its gradient, their softmax."""
    logits = (x @ w.T).float()  # (rows, vocabulary)
    of_label = logits.gather(1, label)
    if logits.device.type != "cpu":
        # logsumexp(z) = max(z) - log(max(softmax(z))), which saves a second pass of exponentials.
        highest = logits.amax(dim=1, keepdim=True)
        softmax = torch.softmax(logits, dim=1, out=logits)
        return of_label, highest - softmax.amax(dim=1, keepdim=True).log(), softmax
    # The same of the label in place of the maximum, which saves two more passes, unless its probability is too small.
    softmax = torch.softmax(logits, dim=1, out=logits)
    probability = softmax.gather(1, label)
    log_sum_exp = of_label - probability.log()
    unlikely = (probability < _SMALL)[:, 0]
    if unlikely.any():
        log_sum_exp[unlikely] = (x[unlikely] @ w.T).float().logsumexp(dim=1, keepdim=True)
    return of_label, log_sum_exp, softmax
