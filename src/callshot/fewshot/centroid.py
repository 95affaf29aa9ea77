"""The nearest-centroid rule: as centroids, as a linear layer, as an estimator of scikit-learn.

    c_n = mean of the class's support        a_n = 2 c_n·z − |c_n|²        W = 2 C,  b = −|c_n|²

The decision is argmax a_n, which is argmin |z − c_n|². Scores are log-odds of softmax(a), or the
softmax.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.fewshot.kernels.scores import to_scores
from callshot.records import FloatArray


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer: a = W z + b, with weight (classes, dimensions) and bias (classes)."""

    weight: FloatArray
    bias: FloatArray

    def __call__(self, vectors: ArrayLike) -> FloatArray:
        """Return a_n for each vector, (…, classes)."""
        return np.asarray(vectors, np.float64) @ self.weight.T + self.bias


def linear_layer(vectors: ArrayLike, label: ArrayLike) -> LinearLayer:
    """Return the layer whose argmax is the nearest class mean; outputs are the sorted labels.

    >>> layer = linear_layer([[0.0], [4.0]], ["rumble", "roar"])
    >>> layer([1.0])  # roar, rumble
    array([-8.,  0.])
    """
    table = np.asarray(vectors, np.float64)
    names = np.asarray(label)
    means = [table[names == name].mean(axis=0) for name in np.unique(names)]
    return layer_of_means(np.stack(means))


def layer_of_means(means: FloatArray) -> LinearLayer:
    """Return the layer of class means (classes, dimensions): W = 2 C, b = −|c_n|²."""
    return LinearLayer(2.0 * means, -np.einsum("nd,nd->n", means, means))


def log_odds(a: ArrayLike) -> FloatArray:
    """Return the log-odds of softmax(a) over the last axis: a_n − log Σ_{m≠n} exp a_m.

    They rank queries as the softmax does, and do not saturate.

    >>> log_odds([800.0, 0.0])
    array([ 800., -800.])
    """
    return _score(a, use_softmax=False)


def softmax(a: ArrayLike) -> FloatArray:
    """Return the softmax of a (…, classes), which saturates.

    >>> softmax([800.0, 0.0])
    array([1., 0.])
    """
    return _score(a, use_softmax=True)


def _score(a: ArrayLike, *, use_softmax: bool) -> FloatArray:
    """Return the log-odds or the softmax of a (…, classes), by the kernel of the sweeps."""
    table = np.asarray(a, np.float64)
    classes = table.shape[-1]
    rows = table.reshape(-1, classes)
    # The kernel works on (1, classes, 1, rows), and also fills in decisions, not needed here.
    columns = np.array(rows.T[None, :, None], order="C")  # the order it is compiled for
    decided = np.empty((1, 1, len(rows)), np.uint16)
    to_scores(
        columns, first=0, last=1, softmax=use_softmax, ranking=False, decided=decided
    )
    scores = columns[0, :, 0].T  # (rows, classes)
    return scores.reshape(table.shape)


Labels = NDArray[Any]


class CentroidClassifier:
    """Classify by the nearest class mean, with probabilities and log-odds.

    The score of class n is a_n = 2 c_n·z − |c_n|², with c_n the mean of its examples and z the
    query; probabilities are softmax(a). Nothing is trained and nothing is tuned. It passes
    scikit-learn's `check_estimator`; scikit-learn is not needed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    centroids_ : ndarray of shape (n_classes, n_features)
        The mean of each class.
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        The rule as a linear layer: 2 c_n; for two classes, the second minus the first.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
        −|c_n|²; for two classes, the second minus the first.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        The columns of X, where scikit-learn is installed and X is a data frame.

    Notes
    -----
    Examples are kept, and their sums are rounded once (`math.fsum`). So `partial_fit` gives the
    same bits as `fit` on all data, whatever the batches and their order.

    Examples
    --------
    >>> X = [[0.0, 0.0], [2.0, 0.0], [5.0, 5.0], [9.0, 0.0]]
    >>> model = CentroidClassifier().fit(X, ["rumble", "rumble", "roar", "bark"])
    >>> model.predict([[1.5, 0.5]]).tolist()
    ['rumble']
    >>> model.decision_function([[1.5, 0.5]]).round(1).tolist()
    [[-56.0, -32.0, 32.0]]
    >>> model.partial_fit([[1.0, 1.0]], ["roar"]).centroids_[1]
    array([3., 3.])
    """

    classes_: Labels
    centroids_: FloatArray
    n_features_in_: int
    _vectors: FloatArray
    _label: Labels
    _layer: LinearLayer

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Compute the class means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors, for example embeddings.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        self
        """
        return self._learn(X, y, reset=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> Self:
        """Add examples to the class means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors.
        y : array-like of shape (n_samples,)
            Their labels; a call may bring new ones.
        classes : ignored
            Accepted because scikit-learn's other classifiers need it.

        Returns
        -------
        self
        """
        return self._learn(X, y, reset=not hasattr(self, "classes_"))

    def _learn(self, X: ArrayLike, y: ArrayLike, reset: bool) -> Self:
        """Compute the class means of X and y, and of all earlier examples unless `reset`."""
        vectors, label = _validate(self, X, y, reset=reset)
        if not reset:
            vectors = np.concatenate([self._vectors, vectors])
            label = np.concatenate([self._label, label])
        self._vectors = vectors
        self._label = label
        self.classes_ = np.unique(label)
        means = []
        for name in self.classes_:
            # fsum rounds once, so the order of examples does not matter.
            columns = vectors[label == name].T.tolist()
            means.append([math.fsum(column) / len(column) for column in columns])
        self.centroids_ = np.array(means)
        self._layer = layer_of_means(self.centroids_)
        return self

    @property
    def coef_(self) -> FloatArray:
        """The weights of the linear layer."""
        weight = self._layer.weight
        return np.diff(weight, axis=0) if len(weight) == 2 else weight

    @property
    def intercept_(self) -> FloatArray:
        """The biases of the linear layer."""
        bias = self._layer.bias
        return np.diff(bias) if len(bias) == 2 else bias

    def predict(self, X: ArrayLike) -> Labels:
        """Return the label of the nearest class mean for each row of X."""
        numbers = self._logits(X).argmax(axis=1)
        return self.classes_[numbers]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return softmax(a), (n_samples, n_classes)."""
        return softmax(self._logits(X))

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return log-odds, which rank as the probabilities do and do not saturate.

        The shape is (n_samples, n_classes); for two classes it is (n_samples,), and the log-odds
        are those of the second.
        """
        scores = log_odds(self._logits(X))
        return scores[:, 1] if len(self.classes_) == 2 else scores

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the share of rows whose label is predicted."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def _logits(self, X: ArrayLike) -> FloatArray:
        """Return a_n = 2 c_n·z − |c_n|² of each row z of X, (n_samples, n_classes)."""
        vectors, _ = _validate(self, X)
        return self._layer(vectors)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters: there are none."""
        return {}

    def set_params(self, **params: Any) -> Self:
        """Accept no parameter."""
        if params:
            raise InputError(
                f"CentroidClassifier has no parameter {next(iter(params))!r}"
            )
        return self

    def __repr__(self) -> str:
        return "CentroidClassifier()"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks about an estimator."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        target = TargetTags(required=True)
        return Tags("classifier", target_tags=target, classifier_tags=ClassifierTags())


def _validate(
    model: CentroidClassifier,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    reset: bool | None = None,
) -> tuple[FloatArray, Labels]:
    """Return vectors and labels as checked arrays, by scikit-learn if it is installed.

    `reset` is whether X may have another number of features than before. None means that X are
    queries.
    """
    try:
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import check_is_fitted, validate_data
    except ImportError:
        return _validate_alone(model, X, y, reset)
    if reset is None:
        check_is_fitted(model)
        vectors = validate_data(model, X, reset=False, dtype=np.float64)
        return vectors, np.zeros(len(vectors))  # queries have no labels
    vectors, label = validate_data(model, X, y, reset=reset, dtype=np.float64)
    check_classification_targets(label)
    return vectors, label


def _validate_alone(
    model: CentroidClassifier, X: ArrayLike, y: ArrayLike | None, reset: bool | None
) -> tuple[FloatArray, Labels]:
    """Return what `_validate` does where scikit-learn is not installed.

    `reset` is True in `fit`, False where `partial_fit` adds examples, None where X are queries.
    """
    vectors = np.asarray(X, np.float64)
    label = np.zeros(len(vectors)) if reset is None else np.asarray(y)
    if reset:
        model.n_features_in_ = vectors.shape[-1]
    if not hasattr(model, "n_features_in_"):
        raise InputError("CentroidClassifier is not fitted; call fit first")
    shape = (len(vectors), model.n_features_in_)
    if vectors.shape != shape or not np.isfinite(vectors).all():
        raise InputError(
            f"X: expected finite numbers of shape (n_samples, {shape[1]}), got shape "
            f"{vectors.shape}, or NaN or infinity"
        )
    if label.shape != shape[:1]:
        raise InputError(f"y: expected {len(vectors)} labels, got shape {label.shape}")
    return vectors, label
