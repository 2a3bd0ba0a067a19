package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/wire"
)

// The resources: farhand://machines, and for each machine farhand://NAME/devices
// and farhand://NAME/files/PATH, where PATH is relative to its first root, or
// absolute after a second slash. A directory is a list of what is in it.
const (
	scheme      = "farhand://"
	machinesURI = scheme + "machines"
	devicesURI  = scheme + "{machine}/devices"
	filesURI    = scheme + "{machine}/files/{+path}"
)

const typeJSON = "application/json"

func (s *Server) addTemplates() {
	s.mcp.AddResource(&mcp.Resource{
		URI: machinesURI, Name: "machines", Title: "Machines", MIMEType: typeJSON,
		Description: "The machines that can be used, and what is granted on each.",
	}, s.readMachines)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: devicesURI, Name: "devices", Title: "Devices of a machine", MIMEType: typeJSON,
		Description: "What is wired to a machine: GPIO chips, I2C and SPI buses, serial ports, USB devices, printers.",
	}, s.readDevices)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: filesURI, Name: "files", Title: "Files of a machine",
		Description: "A file, or what is in a directory. The path is relative to the machine's first root; with another slash before it, it is absolute.",
	}, s.readFiles)
}

// becomeResources lists the devices of every machine. Called with looking held.
func (s *Server) becomeResources(machines []string) {
	uri := func(name string) string { return scheme + url.PathEscape(name) + "/devices" }
	var gone []string
	for _, m := range s.reach.machines {
		if !slices.Contains(machines, m) {
			gone = append(gone, uri(m))
		}
	}
	if len(gone) > 0 {
		s.mcp.RemoveResources(gone...)
	}
	for _, m := range machines {
		if !slices.Contains(s.reach.machines, m) {
			s.mcp.AddResource(&mcp.Resource{
				URI: uri(m), Name: m + " devices", Title: "Devices of " + m, MIMEType: typeJSON,
				Description: "What is wired to " + m + ".",
			}, s.readDevices)
		}
	}
}

// parseURI takes a resource's address apart.
func parseURI(uri string) (machine, kind, rest string, ok bool) {
	text, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return "", "", "", false
	}
	machine, text, _ = strings.Cut(text, "/")
	kind, rest, _ = strings.Cut(text, "/")
	var errs [2]error
	machine, errs[0] = url.PathUnescape(machine)
	rest, errs[1] = url.PathUnescape(rest)
	return machine, kind, rest, errs[0] == nil && errs[1] == nil && machine != ""
}

func asJSON(uri string, v any, err error) (*mcp.ReadResourceResult, error) {
	if err != nil {
		return nil, resourceError(uri, err)
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: typeJSON, Text: string(b)}}}, nil
}

// resourceError is the protocol's error for a resource that isn't there, and the
// code with what to do next for everything else.
func resourceError(uri string, err error) error {
	e := described(err)
	switch e.Code {
	case wire.PathNotFound, wire.MachineNotAttached, wire.PathOutsideAllowedRoot:
		return mcp.ResourceNotFoundError(uri)
	}
	text := string(e.Code) + ": " + e.Message
	if next := hint(e); next != "" {
		text += ". Next: " + next
	}
	return wire.Errorf(e.Code, "%s", text)
}

func (s *Server) readMachines(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	out, _, err := listMachines(ctx, &call{Server: s}, struct{}{})
	return asJSON(req.Params.URI, out, err)
}

func (s *Server) readDevices(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	machine, kind, _, ok := parseURI(req.Params.URI)
	if !ok || kind != "devices" {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	out, _, err := s.devices(ctx, machine, "")
	return asJSON(req.Params.URI, out, err)
}

func (s *Server) readFiles(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	machine, kind, name, ok := parseURI(uri)
	if !ok || kind != "files" {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	if name == "" {
		name = "."
	}
	ses, err := s.at(ctx, machine, name)
	if err != nil {
		return nil, resourceError(uri, err)
	}
	st, err := ses.Stat(ctx, name, true)
	switch {
	case err != nil:
		return nil, resourceError(uri, err)
	case !st.Exists:
		return nil, mcp.ResourceNotFoundError(uri)
	case value(st.IsDir):
		out, _, err := listFiles(ctx, &call{Server: s}, listAsked{onMachine: onMachine{machine}, Path: name, Hidden: true, MaxEntries: 1000})
		return asJSON(uri, out, err)
	case value(st.SizeBytes) > maxRead:
		return nil, resourceError(uri, wire.Errorf(wire.FileTooLarge, "%s has %d bytes, more than the %d of a resource: read it in parts with read_file",
			name, value(st.SizeBytes), maxRead))
	}
	got, err := ses.Read(ctx, name, 0, maxRead)
	if err != nil {
		return nil, resourceError(uri, err)
	}
	c := &mcp.ResourceContents{URI: uri, MIMEType: value(st.MIMEType)}
	if utf8.Valid(got.Content) {
		c.Text = string(got.Content)
	} else {
		c.Blob = got.Content
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
}

// maxCompletions is the most that the protocol allows in one answer.
const maxCompletions = 100

// complete completes machines and paths in the addresses of resources.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	out := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	if req.Params.Ref == nil || req.Params.Ref.Type != "ref/resource" {
		return out, nil
	}
	typed := req.Params.Argument.Value
	var all []string
	switch req.Params.Argument.Name {
	case "machine":
		machines, err := s.client.Machines(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range machines {
			all = append(all, m.Name)
		}
	case "path":
		machine := ""
		if c := req.Params.Context; c != nil {
			machine = c.Arguments["machine"]
		}
		folder := path.Dir(typed)
		ses, err := s.at(ctx, machine, folder)
		if err != nil {
			return out, nil // a completion has nothing to say, then
		}
		list, err := ses.List(ctx, wire.FileList{Path: folder})
		if err != nil {
			return out, nil
		}
		for _, e := range list.Entries {
			name := path.Join(folder, e.Name)
			if e.IsDir {
				name += "/"
			}
			all = append(all, name)
		}
	}
	for _, v := range all {
		if !strings.HasPrefix(v, typed) {
			continue
		}
		if len(out.Completion.Values) == maxCompletions {
			out.Completion.HasMore = true
			break
		}
		out.Completion.Values = append(out.Completion.Values, v)
	}
	return out, nil
}
