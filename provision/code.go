package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"farhand/provision/fat"
	"farhand/provision/request"
	"farhand/provision/screen"
)

// The files on the card that show a code, and what keeps a machine from one.
const (
	pairText    = "PAIR.TXT"
	pairPicture = "PAIR.PNG"
	statusText  = "STATUS.TXT"
)

// codeEvery is how often a code is written on the card at most, after the first
// time since the start: flash wears out, and a code lives an hour.
const codeEvery = time.Hour

const (
	// statusAfter is how long after the start a machine that isn't paired and shows
	// no code leaves a note of why: who has no screen looks at the card then.
	statusAfter = 3 * time.Minute
	// statusFile is to that note what codeFile is to a code.
	statusFile = runDir + "/status-written"
)

// codeFile is there from the first code of this boot on that was written on the
// card, and holds a lastCode. It is kept outside of the process: that leaves when
// it is idle, and the daemon can have it do so.
const codeFile = runDir + "/code-written"

type lastCode struct {
	Uptime time.Duration `json:"uptime_ns"` // of the machine, then
}

// due says whether the card may be written now, as far as what is noted in file
// goes, and notes that it is about to be: a card that fails isn't tried every
// minute.
func (s *System) due(file string) (bool, error) {
	now := s.Clock.Uptime()
	b, err := readLimited(s.path(file), 1<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, fmt.Errorf("read when the card was written: %w", err)
	default:
		var last lastCode
		if err := json.Unmarshal(b, &last); err != nil {
			return false, fmt.Errorf("read when the card was written: %w", err)
		}
		if now-last.Uptime < codeEvery {
			return false, nil
		}
	}
	if b, err = json.Marshal(lastCode{now}); err == nil {
		err = s.install(file, b, 0o600, 0, 0)
	}
	if err != nil {
		return false, fmt.Errorf("note that the card is written: %w", err)
	}
	return true, nil
}

// writeCode writes a code on the card, unless it stands there or another was
// written lately.
func (srv *Server) writeCode(ctx context.Context, p request.Pairing) error {
	srv.card.Lock()
	defer srv.card.Unlock()
	if srv.sys.Card == nil || srv.shown == p.UserCode {
		return nil
	}
	page := srv.front.Page(srv.sys.Clock.Now())
	text := page.Text()
	var there []byte
	if err := srv.sys.Card.View(ctx, func(root *os.Root) (err error) {
		there, err = fat.Read(root, pairText, 64<<10)
		return err
	}); err != nil {
		return err
	}
	if bytes.Contains(there, []byte(p.UserCode)) { // the machine started anew with a code that still waits
		srv.shown = p.UserCode
		return nil
	}
	if due, err := srv.sys.due(codeFile); err != nil || !due {
		return err
	}
	picture, err := page.PNG()
	if err != nil {
		return err
	}
	if err := srv.sys.Card.Commit(ctx, func(root *os.Root) error {
		return errors.Join(fat.Replace(root, pairPicture, picture), fat.Replace(root, pairText, text))
	}); err != nil {
		return err
	}
	srv.shown = p.UserCode
	return nil
}

// writeStatus leaves the note of why a machine that was never paired isn't
// connected, once for each start and then once an hour at most.
func (srv *Server) writeStatus(ctx context.Context, st request.Status) error {
	srv.mu.Lock()
	paired := srv.store.Paired
	srv.mu.Unlock()
	switch st.State {
	case "connected", "online", "starting", "stopping":
		return nil
	}
	up := srv.sys.Clock.Uptime()
	if srv.sys.Card == nil || paired || up < statusAfter {
		return nil
	}
	srv.card.Lock()
	defer srv.card.Unlock()
	if due, err := srv.sys.due(statusFile); err != nil || !due {
		return err
	}
	page := srv.front.Page(srv.sys.Clock.Now())
	text := fmt.Appendf(page.Text(), "\r\nSo it was %s after the start.\r\n", screen.Lasting(up))
	return srv.sys.Card.Commit(ctx, func(root *os.Root) error { return fat.Replace(root, statusText, text) })
}

// removeCode removes it, and the note of why there was none. It looks first: a card is only written if there is
// something to change, so removing happens no more often than writing.
func (srv *Server) removeCode(ctx context.Context) error {
	srv.card.Lock()
	defer srv.card.Unlock()
	if srv.sys.Card == nil {
		return nil
	}
	there := false
	err := srv.sys.Card.View(ctx, func(root *os.Root) error {
		for _, name := range []string{pairText, pairPicture, statusText} {
			if _, err := root.Lstat(name); err == nil {
				there = true
			}
		}
		return nil
	})
	if err == nil && there {
		err = srv.sys.Card.Commit(ctx, func(root *os.Root) error {
			return errors.Join(fat.Remove(root, pairText), fat.Remove(root, pairPicture), fat.Remove(root, statusText))
		})
	}
	if err != nil {
		return fmt.Errorf("remove the code from the card: %w", err)
	}
	srv.shown = ""
	return nil
}
