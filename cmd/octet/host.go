package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/collectives/topology"
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
		Topology: func(_ context.Context, q *octetv1.TopologyRequest) (*octetv1.TopologyResponse, error) {
			return r.topology(q.GetExplain())
		},
		Tune: r.tuner(),
	}
}

// topology is what octet topo prints here, as JSON and for people.
func (r *running) topology(explained bool) (*octetv1.TopologyResponse, error) {
	box, err := topology.Discover("/sys")
	if err != nil {
		return nil, err
	}
	document := topoDocument{Box: box}
	var text strings.Builder
	if explained {
		if document.Explained, err = explain(box, r.settings.ranks, true); err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		document.Explained.print(&text)
	}
	encoded, err := json.Marshal(document)
	return &octetv1.TopologyResponse{BoxJson: encoded, Explanation: text.String()}, err
}

// tuner measures beside the group that serves, once at a time, and keeps the plan for
// the groups of this size that start from then on.
func (r *running) tuner() func(context.Context, *octetv1.TuneRequest) (*octetv1.TuneResponse, error) {
	var one sync.Mutex
	return func(ctx context.Context, q *octetv1.TuneRequest) (*octetv1.TuneResponse, error) {
		if len(r.settings.gpus) > 0 {
			return nil, status.Error(codes.FailedPrecondition, "the ranks are on GPUs, which choose their path when they start: there is nothing to tune")
		}
		sizes, err := tuneSizes(q.GetSizesBytes())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if !one.TryLock() {
			return nil, status.Error(codes.FailedPrecondition, "the server is tuning already: wait until it is done")
		}
		defer one.Unlock()
		if budget := q.GetBudget().AsDuration(); budget > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, budget)
			defer cancel()
		}
		result, err := tune(ctx, tuneSettings{ranks: r.settings.ranks, requireFast: r.settings.requireFast, sizes: sizes})
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, status.Error(codes.DeadlineExceeded, "tuning was not done in time: give it more, or fewer sizes")
		}
		if err == nil {
			_, err = result.save(r.settings.ranks)
		}
		if err != nil {
			return nil, err
		}
		var plan bytes.Buffer
		err = result.Plan.Write(&plan)
		return &octetv1.TuneResponse{PlanJson: plan.Bytes(), Hash: fmt.Sprintf("%016x", result.Plan.Hash())}, err
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
