import { Injectable } from '@nestjs/common';
import { Destinations, FederationClient, FederationRequestError, type RetryPlan } from '@rookery/federation-client';
import { isValidServerName, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger } from '@rookery/platform';

/** Servers that are asked for one thing at most. */
const maxServers = 10;
/** Servers whose refusal is believed: the others of the room would say the same. */
const maxRefusals = 3;
const usualPatienceMs = 180_000;
/** With others to ask, the first step must not take longer, nor more than a part of what a request may take; milliseconds. */
const impatienceMs = 10_000;
const impatienceShare = 6;
/** Most servers of a list that are looked at. */
const maxListed = 100;

/** Codes of other servers that mean something to the clients of this one. */
const passedOn: ReadonlySet<string> = new Set([
  'M_FORBIDDEN',
  'M_NOT_FOUND',
  'M_INCOMPATIBLE_ROOM_VERSION',
  'M_UNSUPPORTED_ROOM_VERSION',
  'M_UNABLE_TO_AUTHORISE_JOIN',
  'M_UNABLE_TO_GRANT_JOIN',
  'M_RESOURCE_LIMIT_EXCEEDED',
  'M_INVITE_BLOCKED',
  'M_BAD_STATE',
]);

/** Another server's answer is not what it must be: it is not used, and the server is not believed. */
export class WrongAnswer extends FederationRequestError {
  constructor(destination: string, why: string) {
    super(destination, 'bad_response', `${destination} gave a wrong answer: ${why}`);
  }
}

/** How one of the servers should be asked. */
export interface Attempt {
  /** The only server there is deserves more patience than one of many. */
  readonly retries: RetryPlan;
  /**
   * For the first step: while there are others a server that takes its time is left for later. `undefined` for the usual time.
   */
  readonly timeoutMs?: number;
}

interface Turn {
  readonly server: string;
  readonly attempt: Attempt;
  /** Whether the server is not asked once more when it is slow. */
  readonly isLast: boolean;
}

/** Tries servers one after the other until one of them helps. */
@Injectable()
export class Candidates {
  readonly #logger: Logger;

  constructor(
    private readonly client: FederationClient,
    private readonly destinations: Destinations,
    private readonly config: Config,
    private readonly clock: Clock,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /** Those of a list that can be asked at all, each once. */
  usable(servers: Iterable<string>): string[] {
    const usable = new Set<string>();
    for (const server of [...servers].slice(0, maxListed)) {
      if (server !== this.config.serverName && isValidServerName(server) && this.client.allows(server)) {
        usable.add(server);
      }
    }
    return [...usable];
  }

  /**
   * Lets servers try in turn, those that could not be reached lately behind the others, since somebody waits; the first success
   * counts. Who was slow, and not out of reach before, is asked once more in the end.
   * @param ask throws FederationRequestError when a server does not help
   * @param patienceMs after so much time no further server is asked
   * @throws MatrixError 404 `M_NOT_FOUND` when there is nobody to ask, else what says most of their refusals, 502 or 504
   *   when none of them answered
   */
  async first<T>(
    servers: Iterable<string>,
    ask: (server: string, attempt: Attempt) => Promise<T>,
    patienceMs = usualPatienceMs,
  ): Promise<T> {
    const usable = this.usable(servers);
    if (usable.length === 0) throw MatrixError.noServerHasRoom();
    let best: MatrixError | undefined;
    let refusals = 0;
    const untilMs = this.clock.nowMs() + patienceMs;
    const turns = await this.#turns(usable.slice(0, maxServers));
    for (const { server, attempt, isLast } of turns) {
      if (best && this.clock.nowMs() >= untilMs) break;
      try {
        return await ask(server, attempt);
      } catch (error) {
        if (!(error instanceof FederationRequestError)) throw error;
        this.#logger.info('Another server did not help', { destination: server, reason: error.message });
        const wasHurried = error.reason === 'timeout' && attempt.timeoutMs !== undefined;
        if (wasHurried && !isLast) turns.push({ server, attempt: { retries: 'none' }, isLast: true });
        // Whoever is asked next is not to wait for it first. One that rests already rests no longer for it.
        if (error.isDown && !wasHurried && (await this.destinations.state(server)).retryAtTs === 0)
          await this.destinations.failed(server);
        const shown = asMatrixError(error);
        if (best === undefined || weight(shown) > weight(best)) best = shown;
        if (shown.status === 403 && ++refusals >= maxRefusals) break;
      }
    }
    throw best!;
  }

  async #turns(servers: readonly string[]): Promise<Turn[]> {
    const [only] = servers;
    if (only !== undefined && servers.length === 1)
      return [{ server: only, attempt: { retries: 'short' }, isLast: true }];
    await this.destinations.prepare(servers);
    const resting = new Set<string>();
    for (const server of servers) if ((await this.destinations.state(server)).retryAtTs > 0) resting.add(server);
    const timeoutMs = Math.min(impatienceMs, this.config.get('federation.client_timeout') / impatienceShare);
    const attempt: Attempt = { retries: 'none', timeoutMs };
    return [
      ...servers.filter((server) => !resting.has(server)).map((server) => ({ server, attempt, isLast: false })),
      ...servers.filter((server) => resting.has(server)).map((server) => ({ server, attempt, isLast: true })),
    ];
  }
}

/** A failure as a client may see it. Only codes that cannot be mistaken for this server's own are passed on. */
export function asMatrixError(error: FederationRequestError): MatrixError {
  const shown = error.toMatrixError();
  if (error.status === undefined) return shown;
  if (error.errcode === undefined || !passedOn.has(error.errcode) || shown.status === 502) {
    return MatrixError.badGateway(error.message);
  }
  const version = error.body?.['room_version'];
  if (error.errcode !== 'M_INCOMPATIBLE_ROOM_VERSION' || typeof version !== 'string') return shown;
  return MatrixError.incompatibleRoomVersion(shown.message, { room_version: version.slice(0, 255) });
}

/** How much an error says: a refusal more than not knowing the room, that more than no answer. */
function weight({ status }: MatrixError): number {
  if (status >= 500) return 0;
  return status === 404 ? 1 : 2;
}
