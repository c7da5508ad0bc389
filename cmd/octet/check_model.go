package main

import (
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/eagle3"
	"github.com/octet-run/octet/model/load"
)

// checkFiles reads the headers of target and drafter and finds what is missing or
// of the wrong shape, before a process is started. It returns each rank's part.
func (s *groupSettings) checkFiles(target *model.Config) ([]checkpoint.Plan, error) {
	files, err := checkpoint.Open(s.model)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	plans := make([]checkpoint.Plan, s.ranks)
	for i := range plans {
		shard := model.Shard{Rank: i, Ranks: s.ranks}
		if plans[i], err = load.Plan(files, *target, shard, model.Options{WholeExperts: s.experts == "whole"}); err != nil {
			return nil, err
		}
	}
	if s.drafter() == "" {
		return plans, nil
	}
	config, err := eagle3.ReadConfig(s.drafter(), target, nil)
	if err != nil {
		return nil, err
	}
	draft, err := checkpoint.Open(s.drafter())
	if err != nil {
		return nil, err
	}
	defer draft.Close()
	_, err = eagle3.Plan(eagle3.Source{Draft: draft, Target: files}, config, target, model.Shard{Rank: 0, Ranks: 1})
	return plans, err
}
