package coordinator

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// Host answers for what the process that serves knows and the coordinator does
// not. Functions that are nil are answered with UNIMPLEMENTED, those of faults
// with PERMISSION_DENIED.
type Host struct {
	// Status adds ranks, plan, versions and restarts to what the coordinator knows.
	Status      func(*octetv1.StatusResponse)
	Topology    func(context.Context, *octetv1.TopologyRequest) (*octetv1.TopologyResponse, error)
	Tune        func(context.Context, *octetv1.TuneRequest) (*octetv1.TuneResponse, error)
	RestartRank func(context.Context, *octetv1.RestartRankRequest) (*octetv1.RestartRankResponse, error)
	ArmFault    func(context.Context, *octetv1.ArmFaultRequest) (*octetv1.ArmFaultResponse, error)
	ListFaults  func(context.Context, *octetv1.ListFaultsRequest) (*octetv1.ListFaultsResponse, error)
	ClearFaults func(context.Context, *octetv1.ClearFaultsRequest) (*octetv1.ClearFaultsResponse, error)
}

var errNoFaults = status.Error(codes.PermissionDenied, "faults can be armed only when the server was started with --allow-faults")

// Status implements octetv1.CoordinatorServer.
func (s *service) Status(context.Context, *octetv1.StatusRequest) (*octetv1.StatusResponse, error) {
	out := wireStatus(&s.coordinator.config, s.coordinator.Stats())
	if s.host.Status != nil {
		s.host.Status(out)
	}
	return out, nil
}

// WatchEvents implements octetv1.CoordinatorServer. The headers go out once every
// event from then on will be seen.
func (s *service) WatchEvents(_ *octetv1.WatchEventsRequest, out octetv1.Coordinator_WatchEventsServer) error {
	events, stop := s.coordinator.Watch()
	defer stop()
	if err := out.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case event := <-events:
			if err := out.Send(wireEvent(event)); err != nil {
				return err
			}
		case <-out.Context().Done():
			return nil
		case <-s.coordinator.done:
			return status.Error(codes.Unavailable, ErrClosed.Error())
		}
	}
}

// Topology implements octetv1.CoordinatorServer.
func (s *service) Topology(ctx context.Context, in *octetv1.TopologyRequest) (*octetv1.TopologyResponse, error) {
	return call(ctx, s.host.Topology, in, nil)
}

// Tune implements octetv1.CoordinatorServer.
func (s *service) Tune(ctx context.Context, in *octetv1.TuneRequest) (*octetv1.TuneResponse, error) {
	return call(ctx, s.host.Tune, in, nil)
}

// RestartRank implements octetv1.CoordinatorServer.
func (s *service) RestartRank(ctx context.Context, in *octetv1.RestartRankRequest) (*octetv1.RestartRankResponse, error) {
	return call(ctx, s.host.RestartRank, in, nil)
}

// ArmFault implements octetv1.CoordinatorServer.
func (s *service) ArmFault(ctx context.Context, in *octetv1.ArmFaultRequest) (*octetv1.ArmFaultResponse, error) {
	return call(ctx, s.host.ArmFault, in, errNoFaults)
}

// ListFaults implements octetv1.CoordinatorServer.
func (s *service) ListFaults(ctx context.Context, in *octetv1.ListFaultsRequest) (*octetv1.ListFaultsResponse, error) {
	return call(ctx, s.host.ListFaults, in, errNoFaults)
}

// ClearFaults implements octetv1.CoordinatorServer.
func (s *service) ClearFaults(ctx context.Context, in *octetv1.ClearFaultsRequest) (*octetv1.ClearFaultsResponse, error) {
	return call(ctx, s.host.ClearFaults, in, errNoFaults)
}

// call runs one of the host's functions, or says that there is none.
func call[In, Out any](ctx context.Context, do func(context.Context, *In) (*Out, error), in *In, absent error) (*Out, error) {
	if do != nil {
		return do(ctx, in)
	}
	if absent == nil {
		absent = status.Error(codes.Unimplemented, "this server cannot do that")
	}
	return nil, absent
}
