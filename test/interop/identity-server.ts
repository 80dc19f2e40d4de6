import { canonicalJson, SigningKey } from '@rookery/events';
import type { TestAuthority } from '@rookery/testing';
import { createServer, request, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Peer } from './peers.js';

type Json = Record<string, unknown>;
interface Invite {
  readonly token: string;
  readonly medium: string;
  readonly address: string;
  readonly room_id: string;
  readonly sender: string;
}

/** An identity server that keeps invites for addresses, and tells the homeserver of whoever proves to own one. */
export class IdentityServer {
  readonly #key = SigningKey.fromSeed('0', new Uint8Array(32).fill(7));
  readonly #invites: Invite[] = [];
  readonly #server: Server;

  constructor(private readonly authority: TestAuthority) {
    this.#server = createServer(authority.issue(['localhost']), (incoming, response) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        const body = incoming.headers['content-type']?.includes('urlencoded')
          ? Object.fromEntries(new URLSearchParams(text))
          : ((text === '' ? {} : JSON.parse(text)) as Json);
        response.setHeader('content-type', 'application/json');
        response.end(JSON.stringify(this.#answer(incoming.url ?? '', body)));
      });
    });
  }

  get name(): string {
    return `localhost:${(this.#server.address() as AddressInfo).port}`;
  }
  start(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }
  stop(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #answer(path: string, body: Json): Json {
    if (path.startsWith('/_matrix/identity/v2/hash_details'))
      return { lookup_pepper: 'pepper', algorithms: ['sha256', 'none'] };
    if (path.startsWith('/_matrix/identity/v2/lookup')) return { mappings: {} };
    if (path.startsWith('/_matrix/identity/v2/pubkey/')) return { valid: true };
    if (path.startsWith('/_matrix/identity/v2/store-invite')) {
      const token = `token${this.#invites.length}`;
      this.#invites.push({ ...(body as unknown as Invite), token });
      const publicKey = this.#key.publicKey;
      const url = `https://${this.name}/_matrix/identity/v2/pubkey/isvalid`;
      return {
        token,
        public_key: publicKey,
        public_keys: [{ public_key: publicKey, key_validity_url: url }],
        display_name: 's...@e...',
      };
    }
    return {};
  }

  /** Somebody has proved to own an address: their homeserver hears of the invites that wait. */
  async bind(home: Peer, address: string, mxid: string): Promise<void> {
    const invites = this.#invites
      .filter((invite) => invite.address === address)
      .map(({ token, medium, room_id, sender }) => {
        const signed = { mxid, token };
        const signatures = { [this.name]: { [this.#key.keyId]: this.#key.sign(canonicalJson(signed)) } };
        return { medium, address, mxid, room_id, sender, signed: { ...signed, signatures } };
      });
    const body = JSON.stringify({ medium: 'email', address, mxid, invites });
    const [host, port] = home.name.split(':');
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const asked = request(
        {
          host,
          port,
          method: 'POST',
          path: '/_matrix/federation/v1/3pid/onbind',
          headers: { 'content-type': 'application/json' },
          ca: this.authority.cert,
        },
        (response) => {
          response.resume();
          response.on('end', () => resolve(response.statusCode));
        },
      );
      asked.on('error', reject);
      asked.end(body);
    });
    if (status !== 200) throw new Error(`${home.kind} answered ${status} to a binding`);
  }
}
