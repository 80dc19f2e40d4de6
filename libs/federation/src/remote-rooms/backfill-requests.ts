import { Injectable } from '@nestjs/common';
import { type RoomEvent, roomVersionRules } from '@rookery/events';
import { FederationClient, federationPath, FederationRequestError } from '@rookery/federation-client';
import { Config, Logger } from '@rookery/platform';
import { RoomStateReader } from '@rookery/rooms';
import { leadingTo } from '@rookery/state-res';
import { PduChecker } from './pdu-checker.js';

/** Events that are asked for at a time. */
export const maxEvents = 100;
/** Longest a server may take, milliseconds. */
const patienceMs = 20_000;
const maxBytes = 32 * 1_048_576;

/** Asks other servers for the history of rooms, and takes of their answers what is sound. */
@Injectable()
export class BackfillRequests {
  readonly #logger: Logger;

  constructor(
    private readonly client: FederationClient,
    private readonly checker: PduChecker,
    private readonly state: RoomStateReader,
    private readonly config: Config,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /**
   * What a server has before some events, oldest first; `undefined` when it does not answer.
   * @spec server-server-api#get_matrixfederationv1backfillroomid
   */
  async before(
    server: string,
    roomId: string,
    wanted: readonly string[],
    limit: number,
  ): Promise<RoomEvent[] | undefined> {
    const version = (await this.state.versions([roomId])).get(roomId);
    const rules = version === undefined ? undefined : roomVersionRules(version);
    if (!rules) return undefined;
    try {
      const answer = await this.client.requestExactJson({
        destination: server,
        method: 'GET',
        path: federationPath`/_matrix/federation/v1/backfill/${roomId}`,
        query: { v: wanted, limit },
        ...{ retries: 'none', awaited: true },
        ...{ maxBytes, timeoutMs: Math.min(patienceMs, this.config.get('federation.client_timeout')) },
      });
      const pdus = Array.isArray(answer['pdus']) ? answer['pdus'].slice(0, maxEvents) : [];
      return leadingTo(wanted, await this.checker.sound(pdus, rules, roomId));
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      this.#logger.debug('Another server gave no history', { destination: server, roomId, reason: error.message });
      // A refusal is an answer.
      return error.status !== undefined && error.status < 500 ? [] : undefined;
    }
  }
}
