import { createHmac } from 'node:crypto';
import type { ConnectionOptions, TlsOptions } from 'node:tls';

/** The name under which processes know their one key. */
const identity = 'rookery';

/**
 * TLS between the processes of a server: both sides prove that they know the server's secret, so no certificate is needed (TLS-PSK,
 * with a new key for each connection).
 * @param secret known to the processes alone
 * @spec https://www.rfc-editor.org/rfc/rfc5489
 */
export function processTls(secret: string): { readonly server: TlsOptions; readonly client: ConnectionOptions } {
  const psk = createHmac('sha256', secret).update('TLS between the processes of one server').digest();
  // Node.js knows such keys up to TLS 1.2 only.
  const common = {
    ciphers: 'ECDHE-PSK-CHACHA20-POLY1305',
    minVersion: 'TLSv1.2',
    maxVersion: 'TLSv1.2',
  } as const;
  return {
    server: { ...common, pskCallback: (_socket, name) => (name === identity ? psk : null) },
    client: {
      ...common,
      servername: '',
      pskCallback: () => ({ psk, identity }),
      // Whoever knows the key is who is meant.
      checkServerIdentity: () => undefined,
    },
  };
}
