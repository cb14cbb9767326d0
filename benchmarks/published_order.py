"""In-Context Pretraining's order (Shi et al. 2024), in the two steps of the program published with it.

Reimplemented in plain Python from a description of that program, without its faults.
"""

import numpy as np
from numpy.typing import NDArray

NEIGHBORS, CLUSTER = 9, 21

Neighbors = NDArray[np.integer]


def paths(neighbors_NK: Neighbors) -> list[list[int]]:
    """The first step.

    From the first unused document to the first unused of its nine nearest, and so on; a path ends when there
    is none or when it has 21 documents.
    """
    near = neighbors_NK[:, :NEIGHBORS].tolist()
    used: set[int] = set()
    clusters = []
    for start in range(len(near)):
        document = start if start not in used else None
        cluster: list[int] = []
        while document is not None:
            used.add(document)
            cluster.append(document)
            unused = (other for other in near[document] if other >= 0 and other not in used)
            document = next(unused, None) if len(cluster) < CLUSTER else None
        if cluster:
            clusters.append(cluster)
    return clusters


def merged(clusters: list[list[int]], neighbors_NK: Neighbors) -> list[list[int]]:
    """The second step: each document of a short path is put before its nearest one in another path.

    A document whose nine nearest are all in its own path stays where it is.
    """
    near = neighbors_NK[:, :NEIGHBORS].tolist()
    home = {document: number for number, cluster in enumerate(clusters) for document in cluster}
    for number, cluster in enumerate(clusters):
        if len(cluster) >= CLUSTER:
            continue
        for document in list(cluster):
            others = (other for other in near[document] if other >= 0 and home[other] != number)
            if (target := next(others, None)) is not None:
                cluster.remove(document)
                into = clusters[home[target]]
                into.insert(into.index(target), document)
                home[document] = home[target]
    return [cluster for cluster in clusters if cluster]


def published_order(neighbors_NK: Neighbors, merge: bool = True) -> NDArray[np.int64]:
    """The published order, with or without its second step."""
    clusters = paths(neighbors_NK)
    return np.concatenate(merged(clusters, neighbors_NK) if merge else clusters)
