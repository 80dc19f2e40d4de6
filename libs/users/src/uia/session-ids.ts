import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import type { Ids } from '@rookery/platform';
import { newSecret } from '../common/secrets.js';
import type { UiaSession } from './uia.query.js';

/** What is known of a session before anything was done with it. */
export type NewUiaSession = Pick<UiaSession, 'createdMs' | 'method' | 'uri' | 'userId' | 'description'>;

/** Session ids longer than this are not ours. */
const longestId = 1024;

/**
 * Ids of interactive-auth sessions. An id is a secret that says, signed, what its session is for: a session that nobody
 * goes on with costs the server nothing.
 */
export class SessionIds {
  readonly #key: Uint8Array;

  /** @param secret without one in the settings, sessions that were not gone on with end with the process */
  constructor(
    secret: string | Uint8Array,
    private readonly ids: Ids,
  ) {
    this.#key = new Uint8Array(hkdfSync('sha256', secret, Buffer.alloc(0), 'rookery interactive auth sessions', 32));
  }

  make(session: NewUiaSession): { readonly sessionId: string; readonly session: UiaSession } {
    const { createdMs, method, uri, userId, description } = session;
    const facts = Buffer.from(JSON.stringify([createdMs, method, uri, userId ?? null, description]));
    const signed = `${newSecret(this.ids, 'uia')}.${facts.toString('base64url')}`;
    return { sessionId: `${signed}.${this.#sign(signed)}`, session };
  }

  /** `undefined` for an id that this server did not make. */
  read(sessionId: string): NewUiaSession | undefined {
    if (sessionId.length > longestId) return undefined;
    const at = sessionId.lastIndexOf('.');
    const signed = sessionId.slice(0, Math.max(at, 0));
    const expected = Buffer.from(this.#sign(signed));
    const given = Buffer.from(sessionId.slice(at + 1));
    if (expected.length !== given.length || !timingSafeEqual(expected, given)) return undefined;
    const facts = Buffer.from(signed.slice(signed.indexOf('.') + 1), 'base64url').toString('utf8');
    const [createdMs, method, uri, userId, description] = JSON.parse(facts) as [
      number,
      string,
      string,
      string | null,
      string,
    ];
    return { createdMs, method, uri, userId: userId ?? undefined, description };
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('base64url');
  }
}
