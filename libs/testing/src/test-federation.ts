import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FakeNames } from './fake-names.js';
import { freePort } from './free-port.js';
import { makeTestAuthority, type TestAuthority } from './test-authority.js';
import { createTestHomeserver, type TestHomeserver, type TestHomeserverOptions } from './test-homeserver.js';

/**
 * Homeservers that find and trust each other, and nobody else: over TLS, with names and certificates of their own.
 *
 * ```ts
 * import { TestFederation } from '@rookery/testing';
 *
 * const federation = await TestFederation.create();
 * const one = await federation.homeserver('one.test', { settings: { modules: [{ module: './dist/index.js' }] } });
 * const two = await federation.homeserver('two.test');
 * const alice = await one.registerUser('alice');
 * const bob = await two.registerUser('bob');
 * const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
 * await bob.request('POST', `/join/${encodeURIComponent(body.room_id)}?via=one.test`, {});
 * await federation.stop();
 * ```
 */
export class TestFederation {
  /** Where its servers look each other up. */
  readonly names = new FakeNames();
  /** Issues the certificates that they trust. */
  readonly authority: TestAuthority = makeTestAuthority();
  readonly #stops: (() => Promise<unknown>)[] = [];

  private constructor(private readonly folder: string) {}

  /** One without servers. */
  static async create(): Promise<TestFederation> {
    const federation = new TestFederation(await mkdtemp(join(tmpdir(), 'rookery-federation-')));
    await writeFile(join(federation.folder, 'ca.pem'), federation.authority.cert);
    return federation;
  }

  /** Settings by which a server belongs to it. */
  get settings(): Readonly<Record<string, unknown>> {
    return {
      federation_custom_ca_list: [join(this.folder, 'ca.pem')],
      ip_range_whitelist: ['127.0.0.0/8'],
      trusted_key_servers: [],
      federation: { max_short_retry_delay: 1, max_long_retry_delay: 1 },
    };
  }

  /** Starts a homeserver with this name: plain HTTP for its clients, TLS for other servers. */
  async homeserver(name: string, options: TestHomeserverOptions = {}): Promise<TestHomeserver> {
    const { cert, key } = this.authority.issue([name]);
    const [certFile, keyFile] = [join(this.folder, `${name}.cert`), join(this.folder, `${name}.key`)];
    await writeFile(certFile, cert);
    await writeFile(keyFile, key);
    const listener = { bind_addresses: ['127.0.0.1'], type: 'http' };
    // The same after a restart.
    const [port, tlsPort] = [await freePort(), await freePort()];
    const homeserver = await createTestHomeserver({
      nameResolver: this.names,
      ...options,
      settings: {
        ...this.settings,
        server_name: name,
        tls_certificate_path: certFile,
        tls_private_key_path: keyFile,
        listeners: [
          { ...listener, port, resources: [{ names: ['client', 'federation', 'media'] }] },
          { ...listener, port: tlsPort, tls: true, resources: [{ names: ['federation'] }] },
        ],
        ...options.settings,
      },
    });
    this.whenStopped(() => homeserver.stop());
    this.names.host(`${name}:8448`, { address: '127.0.0.1', port: tlsPort });
    return homeserver;
  }

  /** Does something when everything is stopped, before what was there already is. */
  whenStopped(stop: () => Promise<unknown>): void {
    this.#stops.push(stop);
  }

  /** Stops all servers, the last first, and removes what belongs to them. */
  async stop(): Promise<void> {
    for (const stop of this.#stops.splice(0).reverse()) await stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}
