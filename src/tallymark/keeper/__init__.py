"""The keeper: folds the journal into points, rolls points up, takes in dead letters, deletes what nobody needs."""
