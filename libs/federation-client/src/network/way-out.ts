import type { Socket } from 'node:net';
import type { SrvRecord } from './name-resolver.js';

/** A port of a host: DNS name or IP address without brackets. */
export interface Route {
  readonly host: string;
  readonly port: number;
}

/**
 * What a connection is for, by which it is decided which addresses are closed and which proxy stands between: requests to other servers, and
 * what these say lies elsewhere, at an address of that kind.
 */
export type Errand = 'federation' | 'https' | 'http';

/** How connections to other servers leave this one. */
export abstract class WayOut {
  /** How long a connection may take by it, with what is done to secure it, milliseconds. */
  abstract readonly limitMs: number;

  /**
   * The SRV records of a name, as they come; empty when there are none.
   * @throws NoWayOutError
   * @throws Error when DNS gives no answer
   */
  abstract srv(name: string): Promise<readonly SrvRecord[]>;

  /**
   * Connects to a port of a host, never at an address that is closed.
   * @throws DialError
   * @throws Error of the system, of DNS or of the proxy; what `signal` aborts with
   */
  abstract connect(route: Route, errand: Errand, signal: AbortSignal): Promise<Socket>;
}
