"""Only cluster-pack itself supports Spark."""

raise ImportError(
    "`cluster_pack.spark` ships archives to Spark, and ydl runs no Spark: install the distribution `cluster-pack` itself for it"
)
