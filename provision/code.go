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
)

// The files on the card that show a code.
const (
	pairText    = "PAIR.TXT"
	pairPicture = "PAIR.PNG"
)

// codeEvery is how often a code is written on the card at most, after the first
// time since the start: flash wears out, and a code lives an hour.
const codeEvery = time.Hour

// codeFile is there from the first code of this boot on that was written on the
// card, and holds a lastCode. It is kept outside of the process: that leaves when
// it is idle, and the daemon can have it do so.
const codeFile = runDir + "/code-written"

type lastCode struct {
	Uptime time.Duration `json:"uptime_ns"` // of the machine, then
}

// codeDue says whether the card may be written now, and notes that it is about to
// be: a card that fails isn't tried every minute.
func (s *System) codeDue() (bool, error) {
	now := s.Clock.Uptime()
	b, err := readLimited(s.path(codeFile), 1<<10)
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
		err = s.install(codeFile, b, 0o600, 0, 0)
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
	if due, err := srv.sys.codeDue(); err != nil || !due {
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

// removeCode removes it. It looks first: a card is only written if there is
// something to change, so removing happens no more often than writing.
func (srv *Server) removeCode(ctx context.Context) error {
	srv.card.Lock()
	defer srv.card.Unlock()
	if srv.sys.Card == nil {
		return nil
	}
	there := false
	err := srv.sys.Card.View(ctx, func(root *os.Root) error {
		for _, name := range []string{pairText, pairPicture} {
			if _, err := root.Lstat(name); err == nil {
				there = true
			}
		}
		return nil
	})
	if err == nil && there {
		err = srv.sys.Card.Commit(ctx, func(root *os.Root) error {
			return errors.Join(fat.Remove(root, pairText), fat.Remove(root, pairPicture))
		})
	}
	if err != nil {
		return fmt.Errorf("remove the code from the card: %w", err)
	}
	srv.shown = ""
	return nil
}
