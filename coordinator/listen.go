package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
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
	if len(fresh) > maxSocketPath {
		return nil, &AddressError{fmt.Sprintf("socket path %s has %d bytes, at most %d are possible: choose a shorter one",
			path, len(path), maxSocketPath-len(fresh)+len(path))}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, cause(err))
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		listener.Close()
		os.Remove(fresh)
		return nil, fmt.Errorf("listen on %s: %w", path, cause(err))
	}
	return &unixListener{Listener: listener, remove: sync.OnceValue(func() error { return os.Remove(path) })}, nil
}

// removeAbandoned makes room at a path for a socket: it removes one that no server
// listens on.
func removeAbandoned(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, cause(err))
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &AddressError{fmt.Sprintf("there is something else than a socket at %s: choose another path", path)}
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return &RefusedError{fmt.Sprintf("another server answers on %s: stop it, or choose another socket", path)}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether a server answers on %s: %w", path, cause(err))
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("the socket %s was left behind and cannot be removed: %w", path, cause(err))
	}
	return nil
}

// unixListener removes its socket when it closes: once, for the next one at that path
// is another server's.
type unixListener struct {
	net.Listener
	remove func() error
}

func (l *unixListener) Close() error {
	return errors.Join(l.Listener.Close(), l.remove())
}

// ListenTCP listens on an address. One that other machines can reach needs a
// token, unless insecure says otherwise.
func ListenTCP(address, token string, insecure bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &AddressError{fmt.Sprintf("%q is not an address to listen on: write HOST:PORT", address)}
	}
	if token == "" && !insecure && !isLoopback(host) {
		return nil, &RefusedError{fmt.Sprintf("other machines can reach %s, so it needs a token: give one in OCTET_TOKEN, use 127.0.0.1, or allow it by --insecure", address)}
	}
	listener, err := net.Listen("tcp", address)
	var name *net.DNSError
	var bad *net.AddrError
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &RefusedError{fmt.Sprintf("something else listens on %s: stop it, or choose another port", address)}
	case errors.As(err, &name), errors.As(err, &bad), errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, &AddressError{fmt.Sprintf("%q is not an address of this machine with a port from 0 to 65535", address)}
	}
	return nil, fmt.Errorf("listen on %s: %w", address, cause(err))
}

// AddressError says that nobody could listen on an address.
type AddressError struct{ text string }

// Error says what is wrong with the address.
func (e *AddressError) Error() string { return e.text }

// RefusedError says that one could listen on an address, but not now or not so.
type RefusedError struct{ text string }

// Error says why not, and what would help.
func (e *RefusedError) Error() string { return e.text }

// maxSocketPath is the length of a Unix socket's path, its end not counted.
const maxSocketPath = 107

// cause is the system's own reason in an error: the rest repeats addresses and calls.
func cause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
