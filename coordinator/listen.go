package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// ListenUnix listens on a socket that only its owner may open. A socket that
// nobody answers on is taken for left behind and replaced; anything else at that
// path stays.
func ListenUnix(path string) (net.Listener, error) {
	if err := removeAbandoned(path); err != nil {
		return nil, err
	}
	// The mode is set before anybody can connect: the socket is made under another
	// name and takes its own only then.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		listener.Close()
		os.Remove(fresh)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &unixListener{listener, path}, nil
}

// removeAbandoned makes room at a path for a socket: it removes one that no server
// listens on.
func removeAbandoned(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %s: there is something else than a socket; choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another server answers on %s; stop it or choose another socket", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether a server answers on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("the socket %s was left behind and cannot be removed: %w", path, err)
	}
	return nil
}

// unixListener removes its socket when it closes.
type unixListener struct {
	net.Listener
	path string
}

func (l *unixListener) Close() error {
	return errors.Join(l.Listener.Close(), os.Remove(l.path))
}

// ListenTCP listens on an address. One that other machines can reach needs a
// token, unless insecure says otherwise.
func ListenTCP(address, token string, insecure bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w; write HOST:PORT", address, err)
	}
	if token == "" && !insecure && !isLoopback(host) {
		return nil, fmt.Errorf("refusing to listen on %s without a token: other machines can reach it; set a token, use 127.0.0.1, or allow it explicitly", address)
	}
	return net.Listen("tcp", address)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
