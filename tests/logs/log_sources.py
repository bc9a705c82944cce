"""The same rows as tables of every library."""

import numpy as np
import pytest

ENGINES = ("parquet", "csv", "jsonl", "duckdb", "query", "polars", "lazy", "pyarrow", "dataset", "pandas", "dask")


def as_source(columns, engine, folder):
    """Make a table of one library from columns, which may hold None."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if engine == "pyarrow":
        return table
    if engine == "pandas":
        return table.to_pandas()
    if engine == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if engine == "lazy":
        return pytest.importorskip("polars").from_arrow(table).lazy()
    if engine == "dask":
        frames = pytest.importorskip("dask.dataframe")
        return frames.from_pandas(table.to_pandas(), npartitions=3)
    if engine == "duckdb":
        return pytest.importorskip("duckdb").connect().from_arrow(table)
    if engine == "query":
        connection = pytest.importorskip("duckdb").connect()
        connection.register("rows", table)
        return connection, "SELECT * FROM rows"
    return as_file(table, engine, folder)


def as_file(table, engine, folder):
    import pyarrow.csv
    import pyarrow.dataset
    import pyarrow.parquet

    folder.mkdir(exist_ok=True)
    half = len(table) // 2
    for place, part in enumerate((table[:half], table[half:])):
        if engine in ("parquet", "dataset"):
            pyarrow.parquet.write_table(part, folder / f"{place}.parquet")
        elif engine == "csv":
            pyarrow.csv.write_csv(part, folder / f"{place}.csv")
        else:
            part.to_pandas().to_json(folder / f"{place}.jsonl", orient="records", lines=True)
    if engine == "dataset":
        return pyarrow.dataset.dataset(folder)
    return str(folder / f"*.{engine}")


def as_believed_file(columns, path):
    """Write a Parquet file whose statistics leave NaN out; DuckDB believes them, and says that no ``conf`` is NaN."""
    duckdb = pytest.importorskip("duckdb")
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    pyarrow.parquet.write_table(table, path)
    assert np.isnan(columns["conf"]).any()
    assert duckdb.connect().read_parquet(str(path)).filter("isnan(conf)").count("*").fetchall() == [(0,)]
    return str(path)


def random_rows(n=300, seed=0, *, ties=True, groups=4):
    """Make rows with ID, OOD, correct and wrong predictions, and two confidences."""
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.8
    correct = is_id & (rng.random(n) < 0.7)
    conf = rng.normal(size=n) + correct
    conf_ood = rng.normal(size=n) + 1.5 * is_id
    if ties:
        conf, conf_ood = conf.round(1), conf_ood.round(1)
    return {
        "correct": correct,
        "conf": conf,
        "is_id": is_id,
        "conf_ood": conf_ood,
        "model": [f"m{number}" for number in rng.integers(0, groups, n)],
    }
