package identity

import "fmt"

// LockedError says that another process uses the state directory.
type LockedError struct {
	Dir string
	PID int // 0 if unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("state directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("state directory %s is in use by process %d", e.Dir, e.PID)
}
