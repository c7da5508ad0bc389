package coordinator

import (
	"context"
	"crypto/subtle"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// Server serves octet.v1.Coordinator, health and reflection over gRPC.
type Server struct {
	grpc        *grpc.Server
	health      *health.Server
	coordinator *Coordinator
	stop        context.CancelFunc
	stopped     chan struct{}
}

// NewServer prepares a server. With a token, calls that do not come over a Unix
// socket must carry it as "authorization: Bearer TOKEN".
func NewServer(c *Coordinator, host Host, token string) *Server {
	auth := authorizer{token}
	s := &Server{
		grpc: grpc.NewServer(
			grpc.UnaryInterceptor(auth.unary),
			grpc.StreamInterceptor(auth.stream),
			grpc.ConnectionTimeout(handshakeTimeout),
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		),
		health:      health.NewServer(),
		coordinator: c,
		stopped:     make(chan struct{}),
	}
	octetv1.RegisterCoordinatorServer(s.grpc, &service{coordinator: c, host: host})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.setHealth()
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go s.watchHealth(ctx)
	return s
}

const (
	// A client that is gone without closing its connection is found by keepalive.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// handshakeTimeout bounds a connection that says nothing: Stop waits for it.
	handshakeTimeout = 5 * time.Second
	// healthPoll is how often the health service follows Stats.
	healthPoll = 20 * time.Millisecond
)

// Serve answers on a listener until Stop. It may be called for several listeners.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// Stop ends the server: calls under way get until ctx to finish.
func (s *Server) Stop(ctx context.Context) {
	s.stop()
	<-s.stopped
	s.health.Shutdown()
	graceful := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(graceful)
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.grpc.Stop()
		<-graceful
	}
}

// watchHealth keeps the health service at what Stats says.
func (s *Server) watchHealth(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(healthPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.setHealth()
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) setHealth() {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if s.coordinator.Stats().Ready {
		state = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus(octetv1.Coordinator_ServiceDesc.ServiceName, state)
}

// authorizer checks the bearer token of calls over TCP.
type authorizer struct{ token string }

func (a authorizer) check(ctx context.Context) error {
	if a.token == "" || localPeer(ctx) {
		return nil
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	for _, value := range values {
		given, ok := strings.CutPrefix(value, "Bearer ")
		if ok && subtle.ConstantTimeCompare([]byte(given), []byte(a.token)) == 1 {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated, "the call carries no valid bearer token")
}

func (a authorizer) unary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := a.check(ctx); err != nil {
		return nil, err
	}
	return next(ctx, in)
}

func (a authorizer) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := a.check(stream.Context()); err != nil {
		return err
	}
	return next(srv, stream)
}
