package files

import (
	"context"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Stat answers FILE_STAT. What doesn't exist is an answer, not an error, with the
// path that it would have. With FollowSymlinks (the default) everything is about
// the target and IsSymlink tells whether the path's own last component is a
// link; without, everything is about that component itself. Failures:
// PATH_OUTSIDE_ALLOWED_ROOT, PATH_INVALID_CHARS, PERMISSION_DENIED (a directory
// on the way can't be searched).
func (r *Root) Stat(ctx context.Context, req wire.FileStat) (wire.FileStatResponse, Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	if err := r.enter(ctx); err != nil {
		return wire.FileStatResponse{}, trace, fault(a, "stat", err)
	}
	defer r.leave()
	p, err := r.find(ctx, a, req.FollowSymlinks == nil || *req.FollowSymlinks, &trace.Path)
	if err != nil {
		return wire.FileStatResponse{}, trace, err
	}
	defer p.close()
	if !p.exists {
		return wire.FileStatResponse{Path: &trace.Path}, trace, nil
	}
	return describe(&p, trace.Path), trace, nil
}

// describe fills the answer for what exists. Its fields point into one value.
func describe(p *place, path string) wire.FileStatResponse {
	v := &struct {
		file, dir, link bool
		size            int64
		mtime, ctime    float64
		mode, mime      string
		uid, gid        uint32
		path            string
	}{
		file: kindOf(&p.st) == unix.S_IFREG, dir: kindOf(&p.st) == unix.S_IFDIR, link: p.link,
		size: p.st.Size, mtime: seconds(p.st.Mtim), ctime: seconds(p.st.Ctim),
		mode: octal(p.st.Mode), uid: p.st.Uid, gid: p.st.Gid, path: path,
	}
	answer := wire.FileStatResponse{
		Exists: true, IsFile: &v.file, IsDir: &v.dir, IsSymlink: &v.link,
		SizeBytes: &v.size, MTime: &v.mtime, CTime: &v.ctime,
		Mode: &v.mode, OwnerUID: &v.uid, OwnerGID: &v.gid, Path: &v.path,
	}
	if v.file {
		if v.mime = mimeType(p.name); v.mime != "" {
			answer.MIMEType = &v.mime
		}
	}
	return answer
}

func seconds(t unix.Timespec) float64 { return float64(t.Sec) + float64(t.Nsec)/1e9 }

// octal is the permission and special bits in four digits: "0644", "1777".
func octal(mode uint32) string {
	return string([]byte{
		'0' + byte(mode>>9&7), '0' + byte(mode>>6&7), '0' + byte(mode>>3&7), '0' + byte(mode&7),
	})
}
