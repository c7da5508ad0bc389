package coordinator

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// Client talks to a running server.
type Client struct {
	octetv1.CoordinatorClient
	conn *grpc.ClientConn
}

// Dial prepares a client of the server at address: the path of a Unix socket, or
// HOST:PORT, where the token goes with every call. The connection is made by the
// first call.
func Dial(address, token string) (*Client, error) {
	target := "passthrough:///" + address
	if strings.Contains(address, "/") || !strings.Contains(address, ":") {
		target = "unix:" + address
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("server address %q: %w", address, err)
	}
	return &Client{CoordinatorClient: octetv1.NewCoordinatorClient(conn), conn: conn}, nil
}

// Close ends the connection, and with it every call under way.
func (c *Client) Close() error { return c.conn.Close() }

// bearer adds a token to calls.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false: a server on a network stands behind a proxy
// that terminates TLS.
func (b bearer) RequireTransportSecurity() bool { return false }

// localPeer says that a call came over a Unix socket.
func localPeer(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	return ok && p.Addr != nil && p.Addr.Network() == "unix"
}
