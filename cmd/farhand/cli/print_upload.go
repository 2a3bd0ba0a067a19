package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) printUpload() *cobra.Command {
	var request wire.PrinterUpload
	cmd := &cobra.Command{
		Use:   "upload [MACHINE] [PRINTER] FILE",
		Short: "Give a file to a printer",
		Long: `upload gives a file to a printer, and prints it with --print. FILE is a file of this
computer, which is copied to the machine first and removed from there afterwards, or
MACHINE:PATH (:PATH with a single machine), a file that is on the machine already.`,
		Example: `  farhand print upload pi prusa bracket.gcode --print
  farhand print upload prusa pi:/data/work/big.gcode --name bracket.gcode`,
		Args: between(1, 3, "[MACHINE] [PRINTER] FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runUpload(cmd, args, request)
		},
		ValidArgsFunction: a.completeUpload(),
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Name, "name", "", "what the printer is to call it (default: its name)")
	flags.StringVar(&request.Folder, "folder", "", "into this `FOLDER` of the printer")
	addLocation(cmd, &request.Location)
	flags.BoolVar(&request.Select, "select", false, "select it")
	flags.BoolVar(&request.Print, "print", false, "print it")
	return cmd
}

// completeUpload completes a file once a machine is there.
func (a *app) completeUpload() cobra.CompletionFunc {
	devices := a.completeDevice("printer")
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		found, _ := devices(cmd, args, typed)
		return found, cobra.ShellCompDirectiveDefault
	}
}

func (a *app) runUpload(cmd *cobra.Command, args []string, request wire.PrinterUpload) error {
	file := args[len(args)-1]
	w := split("printer", args, 1, nil)
	there, onMachine := parseTarget(file)
	var src client.Source
	if onMachine {
		switch {
		case there.path == "":
			return usage("%q names no file: MACHINE:PATH", file)
		case len(args) == 2 && w.machine != "": // PRINTER MACHINE:PATH
			w.machine, w.device = "", deviceName("printer", args[0])
		}
		if w.machine != "" && there.machine != "" && w.machine != there.machine {
			return usage("the file is on %s, the printer on %s: they have to be on one machine", there.machine, w.machine)
		}
		w.machine = first(w.machine, there.machine)
		request.Path = there.path
	} else {
		if file == "-" && request.Name == "" {
			return usage("standard input has no name: give it one with --name")
		}
		var dir *os.Root
		var err error
		if src, dir, err = a.localSource(file); err != nil {
			return err
		}
		if dir != nil {
			dir.Close()
			return usage("%s is a directory", file)
		}
		request.Name = first(request.Name, filepath.Base(file))
	}
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	machine, device, err := a.find(ctx, c, "printer", w)
	if err != nil {
		return err
	}
	var within []string
	if onMachine {
		within = []string{request.Path}
	}
	s, err := a.at(ctx, c, machine, within...)
	if err != nil {
		return err
	}
	if onMachine {
		return a.upload(ctx, s, device, request)
	}
	return a.uploadLocal(ctx, s, device, request, src)
}

// uploadLocal copies a file to the machine for as long as the upload takes.
func (a *app) uploadLocal(ctx context.Context, s *client.Session, device string, request wire.PrinterUpload, src client.Source) error {
	var id [6]byte
	rand.Read(id[:])
	request.Path = ".farhand-upload-" + hex.EncodeToString(id[:]) + path.Ext(request.Name)
	bar := a.progress(ctx, request.Name+" to the machine")
	_, err := s.Put(ctx, request.Path, src, client.PutOptions{Tell: bar.tell})
	bar.end()
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		if failed := s.Delete(bounded, wire.FileDelete{Path: request.Path, MissingOK: true}); failed != nil {
			a.note("%s was left on the machine: %s", request.Path, clean(failed.Error()))
		}
	}()
	if err != nil {
		return err
	}
	return a.upload(ctx, s, device, request)
}

// upload has the machine give the file to the printer. An interrupt ends it.
func (a *app) upload(ctx context.Context, s *client.Session, device string, request wire.PrinterUpload) error {
	st, opened, err := s.PrinterUpload(ctx, device, request)
	if err != nil {
		return err
	}
	bar := a.progress(ctx, first(request.Name, path.Base(request.Path))+" to the printer")
	defer bar.end()
	var done *wire.PrinterUploaded
	err = a.follow(ctx, st, watching{opened: opened, task: true, record: func(raw json.RawMessage) error {
		var p wire.PrinterProgress
		if err := json.Unmarshal(raw, &p); err != nil {
			return wire.Errorf(wire.InternalError, "a record of the upload can't be read: %v", err)
		}
		switch {
		case p.Error != nil:
			return p.Error
		case p.Result != nil:
			done = p.Result
			return errEnough
		case p.Retry != "":
			a.note("The server didn't take the name; it is tried as %s.", clean(p.Retry))
		}
		bar.tell(p.Sent, p.Size)
		return nil
	}})
	bar.end()
	switch {
	case err != nil:
		return err
	case done == nil:
		return wire.Errorf(wire.OpUnconfirmed, "the upload ended without saying how")
	case a.json:
		return nil // the last record said it
	}
	state := ""
	switch {
	case done.Printing:
		state = ", and is printing"
	case done.Selected:
		state = ", and is selected"
	}
	a.tell("%s is on the printer%s.", clean(done.Path), state)
	if done.Renamed {
		a.note("The server calls it so; it was sent as %s.", clean(done.SentName))
	}
	return nil
}
