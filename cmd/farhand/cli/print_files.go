package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) printFiles() *cobra.Command {
	var (
		request           wire.PrinterFiles
		choose, remove    string
		location, folder  string
		recursive, letrun bool
	)
	cmd := &cobra.Command{
		Use:   "files [MACHINE] [PRINTER]",
		Short: "List the files of a printer; select or delete one",
		Long:  "files lists what a printer can print. --select and --delete do that with a file instead.",
		Example: `  farhand print files pi prusa -R
  farhand print files pi prusa --select bracket.gcode
  farhand print files pi prusa --delete old/bracket.gcode`,
		Args: between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request = wire.PrinterFiles{Action: "list", Path: folder, Location: location, Recursive: recursive, Print: letrun}
			switch {
			case choose != "":
				request.Action, request.Path = "select", choose
			case remove != "":
				request.Action, request.Path = "delete", remove
			case letrun:
				return usage("--print goes with --select")
			}
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				if request.Action != "list" {
					return a.runFile(ctx, at, request)
				}
				list, err := at.session.PrinterFiles(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				return a.printFileList(list)
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	flags := cmd.Flags()
	addLocation(cmd, &location)
	flags.StringVar(&folder, "folder", "", "list this `FOLDER`")
	flags.BoolVarP(&recursive, "recursive", "R", false, "folders with what is in them")
	flags.StringVar(&choose, "select", "", "select this `FILE`")
	flags.StringVar(&remove, "delete", "", "delete this `FILE`")
	flags.BoolVar(&letrun, "print", false, "print what is selected")
	cmd.MarkFlagsMutuallyExclusive("select", "delete", "folder")
	cmd.MarkFlagsMutuallyExclusive("delete", "print")
	return cmd
}

func (a *app) printFileList(list wire.PrinterFileList) error {
	if a.json {
		list.Files = append([]wire.PrinterFile{}, list.Files...)
		return a.printJSON(list)
	}
	t := table{head: []string{"PATH", "SIZE", "TIME TO PRINT", "UPLOADED", "WHERE"}}
	for _, f := range list.Files {
		name := cell{text: f.Path}
		if f.Type == "folder" {
			name = cell{f.Path + "/", a.style.out.blue}
		}
		if f.Display != "" && f.Display != f.Path {
			name.text += " (" + f.Display + ")"
		}
		length, estimate, date := "-", "-", "-"
		if f.Size != nil {
			length = size(*f.Size)
		}
		if f.EstimatedSeconds != nil {
			estimate = span(time.Duration(*f.EstimatedSeconds * float64(time.Second)))
		}
		if f.Date != 0 {
			date = clock(float64(f.Date))
		}
		t.add(name, plain(length), plain(estimate), plain(date), plain(f.Location))
	}
	if len(list.Files) == 0 {
		a.note("The printer has no files.")
	} else if err := t.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
		return err
	}
	if list.FreeBytes != nil {
		a.note("%s are free.", size(*list.FreeBytes))
	}
	if list.Truncated {
		a.note("There are more than the machine lists at once.")
	}
	return nil
}

// runFile selects or deletes a file.
func (a *app) runFile(ctx context.Context, at spot, request wire.PrinterFiles) error {
	done, err := at.session.PrinterFile(ctx, at.device, request, at.hold)
	if err != nil {
		return err
	}
	switch {
	case a.json:
		return a.printJSON(done)
	case done.Job != nil:
		a.printJobState(*done.Job, done.Confirmed)
	default:
		a.tell("%s was %s.", clean(done.Path), map[bool]string{true: "deleted", false: "selected"}[strings.EqualFold(request.Action, "delete")])
	}
	return nil
}
