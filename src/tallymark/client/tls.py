"""A connection over TLS whose handshake has more time than the TCP connection before it."""

import http.client
import ssl

HANDSHAKE_S = 5.0
"""two round trips and some arithmetic; TCP has already shown that the server is there"""


class TlsConnection(http.client.HTTPSConnection):
    def __init__(self, host: str, port: int | None) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(host, port, context=self._tls)

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock.settimeout(max(self.timeout or 0.0, HANDSHAKE_S))
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
