import { Injectable } from '@nestjs/common';
import { canonicalJson, parseJson, signJson } from '@rookery/events';
import { KeyRing, OwnKeys, type WantedKeys } from '@rookery/federation-client';
import { networkOf } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, KeyedSemaphore, ownTurn } from '@rookery/platform';
import { UnprovenLimits } from '../inbound/unproven-limits.js';

/** Answers that are made at once for one address: each may take some megabytes. */
const answersOfAddress = 2;

/** Says which keys this server has, and vouches for what other servers said about theirs. */
@Injectable()
export class KeyPublisher {
  readonly #answers = new KeyedSemaphore(answersOfAddress);
  #own: { readonly statement: JsonObject; readonly renewTs: number } | undefined;

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly keys: OwnKeys,
    private readonly ring: KeyRing,
    private readonly unproven: UnprovenLimits,
  ) {}

  /**
   * The keys of this server, signed with each of them; renewed after half of its time.
   * @spec server-server-api#publishing-keys
   */
  own(): JsonObject {
    const nowTs = this.clock.nowMs();
    if (this.#own !== undefined && nowTs < this.#own.renewTs) return this.#own.statement;
    const { serverName, signing, old } = this.keys;
    const lifetimeMs = this.config.get('key_refresh_interval');
    let statement: JsonObject = {
      server_name: serverName,
      valid_until_ts: nowTs + lifetimeMs,
      verify_keys: Object.fromEntries(signing.map(({ keyId, publicKey }) => [keyId, { key: publicKey }])),
      old_verify_keys: Object.fromEntries(
        old.map(({ keyId, publicKey, expiredTs }) => [keyId, { key: publicKey, expired_ts: expiredTs }]),
      ),
    };
    for (const key of signing) statement = signJson(statement, serverName, key);
    // In the order of what was signed, for readers that check the bytes as they come.
    statement = parseJson(canonicalJson(statement)) as JsonObject;
    this.#own = { statement, renewTs: nowTs + lifetimeMs / 2 };
    return statement;
  }

  /**
   * What servers said about their keys, with this server's signature beside theirs. Anybody may ask: an address has so many servers
   * asked as unproven requests may; of the rest, what is kept is told, which has a limit of its own.
   * @param ip of the request
   * @param untilTs until when what servers say of themselves has to hold, milliseconds since the epoch
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   * @spec server-server-api#querying-keys-through-another-server
   */
  async query(ip: string, wanted: WantedKeys, untilTs?: number): Promise<JsonObject[]> {
    const named = [...wanted.values()].reduce((sum, ids) => sum + Math.max(ids.size, 1), 0);
    if (named > 0) await this.unproven.tell(ip, named);
    await this.ring.renew(wanted, untilTs, async (name, ask) => {
      try {
        return await this.unproven.lookUp(ip, `${name} *`, ask);
      } catch (error) {
        if (MatrixError.is(error) && error.status === 429) return undefined;
        throw error;
      }
    });
    return this.#answers.run(networkOf(ip), () => this.#signed(wanted));
  }

  async #signed(wanted: WantedKeys): Promise<JsonObject[]> {
    const { serverName, notary } = this.keys;
    const statements = await this.ring.statements(wanted);
    if (wanted.has(serverName)) statements.push(this.own());
    const signed: JsonObject[] = [];
    for (const statement of statements) {
      if (signed.length > 0) await ownTurn();
      signed.push(notary.reduce((object, key) => signJson(object, serverName, key), statement));
    }
    return signed;
  }
}
