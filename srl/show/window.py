"""A window with the running picture, where there is a display. Tk comes with Python."""

from __future__ import annotations

from typing import Any

from srl.core.errors import UserError
from srl.show.base import Facts, Show, rgb


class Window(Show):
    """Closed by its user, it stays closed."""

    def __init__(self, title: str) -> None:
        self._root: Any = None
        self.address = "a window"
        try:
            import tkinter
        except ImportError as error:
            raise _no_window(str(error)) from error
        try:
            self._root = tkinter.Tk(className="srl")
        except tkinter.TclError as error:
            raise _no_window(str(error)) from error
        self._root.title(title)
        self._root.protocol("WM_DELETE_WINDOW", self.close)
        self._picture = tkinter.Label(self._root)
        self._facts = tkinter.Label(self._root, anchor="w", justify="left")
        self._picture.pack()
        self._facts.pack(fill="x")
        self._image, self._lost = tkinter.PhotoImage, tkinter.TclError

    @property
    def wanted(self) -> bool:
        self._update()  # its user may have closed it
        return self._root is not None

    def picture(self, frame: Any, facts: Facts) -> None:
        if self._root is None:
            return
        picture = rgb(frame)
        height, width, _ = picture.shape
        self._shown = self._image(data=b"P6 %d %d 255\n" % (width, height) + picture.tobytes(), format="PPM")
        self._picture.configure(image=self._shown)
        self._facts.configure(text=facts.line().replace("   ", "\n"))
        self._update()

    def close(self) -> None:
        if self._root is not None:
            root, self._root, self.closed = self._root, None, True
            root.destroy()

    def _update(self) -> None:
        try:
            if self._root is not None:
                self._root.update()
        except self._lost:  # the display was closed
            self._root, self.closed = None, True


def _no_window(found: str) -> UserError:
    return UserError("no window can be opened here", ("found", found), ("try", "show: page, which a browser shows"))
