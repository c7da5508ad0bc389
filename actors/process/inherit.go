package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Inherited is, in the child, the file at descriptor fd. It marks the descriptor
// close-on-exec, so that programs this process starts do not get it.
func Inherited(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, fmt.Errorf("descriptor %d (%s) was not inherited: %w", fd, name, err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}
