"""Cases: ``streammc.predict``, ``streammc.effects`` and their commands."""

CASES = r"""
streammc.predict("nowhere", store)
streammc.predict("flights.zarr", store)
streammc.predict(None, store)
streammc.predict("run", None)
streammc.predict("run", store, "s3://bucket/new.zarr")
streammc.predict("run", "none.zarr")
streammc.predict("run", frame.drop(columns="distance"))
streammc.predict("run", streammc.open_store("other.zarr"))
streammc.predict("run", streammc.open_store("formula.zarr"))
streammc.predict("run", streammc.from_table(frame, formula="I(late > 0) ~ distance + hour"))
streammc.predict(xr.DataTree(), store)
streammc.predict("groups-run", streammc.from_table(frame, like=grouped))
streammc.predict("groups-run", streammc.from_table(frame, like=grouped), trained_on=store)
streammc.predict("groups-run", streammc.from_table(frame, formula="late ~ hour + (1 | delays)"))
streammc.predict("groups-run", streammc.from_table(frame.assign(carrier="new"), like=grouped), trained_on=grouped, new_groups="refuse")
streammc.predict("groups-run", grouped, new_groups="guess")
streammc.predict("groups-warm", grouped)
streammc.predict("run", store, new_groups="refuse")
streammc.predict("run", store, model=models.poisson())
streammc.predict("run", store, model="logistic")
streammc.predict("run", store, draws=1)
streammc.predict("run", store, draws="200")
streammc.predict("run", store, interval=2)
streammc.predict("run", store, interval="wide")
streammc.predict("run", store, interval=None)
streammc.predict("run", store, by="week")
streammc.predict("run", store, by=3)
streammc.predict("run", store, bins=0)
streammc.predict("run", store, by="hour", bins="ten")
streammc.predict("run", store, seed=-1)
streammc.predict("run", store, seed="one")
streammc.predict("run", store, weights=[1.0])
streammc.predict("run", store, weights="even")
streammc.predict("run", store, weights=np.full((2, 20), np.nan))
streammc.predict("run", store, weights=-np.ones((2, 20)))
streammc.predict("run", store, scheduler="thread")
streammc.predict("run", store, progress=3)
streammc.predict("run", store, trained_on="nowhere.zarr")
streammc.predict("run", store, trained_on=3)
streammc.predict("run", store, path="flights.zarr")
streammc.predict("run", store, path=3)
streammc.predict("warming", store)
streammc predict run nowhere.zarr -o new.zarr
streammc predict nowhere flights.zarr -o new.zarr
streammc predict flights.zarr run -o new.zarr
streammc predict run other.zarr -o new.zarr
streammc predict run formula.zarr -o new.zarr
streammc predict run flights.zarr
streammc predict run flights.zarr -o flights.zarr
streammc predict run flights.zarr -o run
streammc predict run flights.zarr -o predictions.zarr --interval 0.5
streammc predict run flights.zarr -o file/new.zarr
streammc predict run flights.zarr -o new.zarr --by week
streammc predict run flights.zarr -o new.zarr --bins 0
streammc predict run flights.zarr -o new.zarr --interval 1
streammc predict run flights.zarr -o new.zarr --interval wide
streammc predict run flights.zarr -o new.zarr --predict-draws 1
streammc predict warming flights.zarr -o new.zarr
streammc predict run offset.zarr -o new.zarr
streammc predict spline-run other-spline.zarr -o new.zarr
streammc predict mean-run column.zarr -o new.zarr
streammc predict run labels.zarr -o new.zarr
streammc predict groups-run groups.zarr -o new.zarr --new-groups guess
streammc predict groups-run groups.zarr -o groups.zarr
streammc predict groups-run groups.zarr -o new.zarr --trained-on nowhere.zarr
streammc.effects("nowhere", grouped)
streammc.effects("flights.zarr", grouped)
streammc.effects(xr.DataTree(), grouped)
streammc.effects("run", store)
streammc.effects("groups-run", store)
streammc.effects("groups-run", "groups.zarr")
streammc.effects("groups-run", frame)
streammc.effects("groups-warm", grouped)
streammc.effects("groups-run", grouped, draws=1)
streammc.effects("groups-run", grouped, interval=2)
streammc.effects("groups-run", grouped, progress=3)
streammc.effects("groups-run", grouped, scheduler="thread")
streammc.effects("groups-run", grouped, path="groups.zarr")
streammc.effects("groups-run", grouped, path="groups.zarr", overwrite=True)
streammc.effect_draws("groups-run", grouped, ["AAA"])
streammc.effect_draws("groups-run", grouped, ["nowhere at all"])
streammc.effect_draws("groups-run", grouped, "AA")
streammc.effect_draws("groups-run", grouped, [])
streammc.effect_draws("groups-run", store, ["AA"])
streammc.effect_draws("groups-run", "groups.zarr", ["AA"])
streammc.effect_draws("groups-warm", grouped, ["AA"])
streammc.effect_draws("run", store, ["AA"])
streammc.effect_draws("groups-run", grouped, ["AA"], draws=1)
streammc effects groups-run -o new.zarr --group nowhere
streammc effects groups-run -o new.zarr --draws 50
streammc effects groups-run -o new.zarr --group AA --interval 0.5
streammc effects run -o new.zarr
streammc effects nowhere -o new.zarr
streammc effects groups-run
streammc effects groups-run -o new.zarr --store flights.zarr
streammc effects groups-run -o new.zarr --store nowhere.zarr
streammc effects groups-run -o groups.zarr
streammc effects groups-run -o new.zarr --effect-draws 1
streammc effects groups-run -o new.zarr --interval 1
"""
