package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/internal/version"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// host answers the calls that concern ranks and not requests.
func (r *running) host() coordinator.Host {
	started := time.Now()
	return coordinator.Host{
		Status: func(s *octetv1.StatusResponse) { r.addStatus(s, started) },
		RestartRank: func(_ context.Context, q *octetv1.RestartRankRequest) (*octetv1.RestartRankResponse, error) {
			n := int(q.GetRank())
			if n >= r.settings.ranks {
				return nil, status.Errorf(codes.InvalidArgument, "rank %d is not one of the group's %d ranks", n, r.settings.ranks)
			}
			r.group.Break(n, "restart requested")
			return &octetv1.RestartRankResponse{}, nil
		},
	}
}

var rankStates = map[actors.RankState]octetv1.RankState{
	actors.StateStarting: octetv1.RankState_RANK_STATE_STARTING,
	actors.StateLoading:  octetv1.RankState_RANK_STATE_LOADING,
	actors.StateReady:    octetv1.RankState_RANK_STATE_READY,
	actors.StateSlow:     octetv1.RankState_RANK_STATE_SLOW,
	actors.StateDown:     octetv1.RankState_RANK_STATE_DOWN,
}

func (r *running) addStatus(s *octetv1.StatusResponse, started time.Time) {
	group := r.group.Status()
	s.Version, s.Backend = version.String(), r.settings.backendName()
	s.RestartsInWindow = uint32(group.Restarts)
	s.Uptime = durationpb.New(time.Since(started))
	for _, k := range group.Ranks {
		s.Ranks = append(s.Ranks, &octetv1.RankStatus{
			Rank: uint32(k.Rank), Pid: int32(k.PID), Device: k.Device, Numa: int32(r.bindings[k.Rank].Node),
			State: rankStates[k.State], RoundMs: float64(k.Busy+k.Wait) / 1e6, SkewUs: float64(k.Wait) / 1e3,
			Restarts: uint32(k.Restarts), LoadedBytes: k.DoneBytes, TotalBytes: k.TotalBytes, LastError: k.LastError,
		})
	}
	s.Plan = &octetv1.PlanStatus{Hash: fmt.Sprintf("%016x", r.planHash)}
}
