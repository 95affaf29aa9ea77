"""Episodes and the supports of the reference against a look at the table."""

import numpy as np
import pytest
from hypothesis import given

from callshot import Protocol
from callshot.fewshot import reference
from corpora import corpora, episodes_of, folds_of


@given(corpora())
def test_episodes_hold_what_a_look_at_the_table_finds(table):
    folds = folds_of(table)
    episodes = episodes_of(table)
    eligible = []
    for name in sorted(set(table.label)):
        rows = [row for row, label in enumerate(table.label) if label == name]
        if {folds.fold[row] for row in rows} >= set(range(folds.count)):
            eligible += [(name, table.segment[row], row) for row in rows]
    eligible.sort()
    assert episodes.classes == tuple(sorted({name for name, _, _ in eligible}))
    assert episodes.segment == tuple(segment for _, segment, _ in eligible)
    assert episodes.rows.tolist() == [row for _, _, row in eligible]
    assert episodes.recording == tuple(table.recording[row] for row in episodes.rows)
    np.testing.assert_array_equal(
        episodes.vectors + episodes.origin, table.matrix[episodes.rows]
    )
    for i, (name, _, row) in enumerate(eligible):
        assert episodes.classes[episodes.label[i]] == name
        assert episodes.fold[i] == folds.fold[row]
        names = {name, *table.labels[row]} & set(episodes.classes)
        is_relevant = [name in names for name in episodes.classes]
        assert episodes.relevant[i].tolist() == is_relevant


@pytest.mark.parametrize("spread", ["per-query", "shared"])
@given(table=corpora(folds=2))
def test_a_support_is_distinct_outside_the_fold_and_nested_over_k(spread, table):
    episodes = episodes_of(table)
    query = int(np.flatnonzero(episodes.fold == 0)[0])
    for n in range(len(episodes.classes)):
        supports = [
            reference.draw_support(episodes, Protocol(), spread, query, 3, n, k)
            for k in range(1, 12)
        ]
        pool = np.flatnonzero((episodes.label == n) & (episodes.fold != 0)).tolist()
        for k, support in enumerate(supports, start=1):
            assert len(support) == min(k, len(pool))
            assert set(support) <= set(pool)
            assert set(support) >= set(supports[max(k - 2, 0)]) or k == 1
        assert supports[-1] == pool
