import { MatrixError } from '@rookery/matrix-types';
import { type Clock, KeyedSemaphore, Semaphore } from '@rookery/platform';

/** Files that are fetched at a time, of all servers. */
const altogether = 200;
/** Of these, for one user. */
const perUser = 50;
/** Who waits: for one user's own places with one server and with all, for those of a server, and for those of all. */
const maxWaitingOfUser = 200;
const maxWaiting = 1_000;
/** Longest time that a request waits for its place. */
const longestWaitMs = 30_000;
const retryWhenBusyMs = 1_000;

const refuse = (): MatrixError => MatrixError.limitExceeded(retryWhenBusyMs);

/** Who wants a file of which server. */
export interface FetchPlaceWanted {
  readonly server: string;
  /** The user, or whatever stands for somebody who is not logged in. */
  readonly holder: string;
}

/**
 * Places of those who fetch files from other servers: so many altogether, some of them for one server and few for one user, so that neither a
 * server that does not answer nor a user who asks for much keeps the others out. Whoever has to wait goes behind those who wait already.
 */
export class FetchPlaces {
  readonly #all = new Semaphore(altogether, { maxWaiting, refuse });
  readonly #ofUsers = new KeyedSemaphore(perUser, { maxWaiting: maxWaitingOfUser, refuse });
  readonly #ofServers: KeyedSemaphore;
  readonly #ofUsersAtServers: KeyedSemaphore;

  /**
   * @param perServer files of one server
   * @param perUserAtServer the same for one user
   */
  constructor(
    private readonly clock: Clock,
    { perServer, perUserAtServer }: { readonly perServer: number; readonly perUserAtServer: number },
  ) {
    this.#ofServers = new KeyedSemaphore(perServer, { maxWaiting, refuse });
    this.#ofUsersAtServers = new KeyedSemaphore(perUserAtServer, { maxWaiting: maxWaitingOfUser, refuse });
  }

  /**
   * Does work once there is a place, which is given back after it.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` where too many wait already, or there was none in time; else what the work throws
   */
  run<T>({ server, holder }: FetchPlaceWanted, work: () => Promise<T>): Promise<T> {
    const patience = new AbortController();
    const timer = this.clock.after(longestWaitMs, () => patience.abort(refuse()));
    const { signal } = patience;
    const begin = (): Promise<T> => {
      timer.cancel();
      return work();
    };
    // What fewest wait for comes first: who waits for their own turn, or for a server, keeps nobody else waiting.
    const inAll = (): Promise<T> => this.#all.run(begin, { signal });
    const ofServer = (): Promise<T> => this.#ofServers.run(server, inAll, { signal });
    const ofUser = (): Promise<T> => this.#ofUsers.run(holder, ofServer, { signal });
    return this.#ofUsersAtServers.run(`${holder}\n${server}`, ofUser, { signal }).finally(() => timer.cancel());
  }
}
