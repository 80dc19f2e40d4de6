/** An SRV record. */
export interface SrvRecord {
  readonly name: string;
  readonly port: number;
  readonly priority: number;
  readonly weight: number;
}

/** Where a connection goes. */
export interface Endpoint {
  /** IPv4 or IPv6 address, without brackets. */
  readonly address: string;
  readonly port: number;
}

/** The only way from names to addresses, so that tests have a world of their own. */
export abstract class NameResolver {
  /**
   * The SRV records of a name, as they come; empty when there are none.
   * @throws Error when DNS gives no answer
   */
  abstract srv(name: string): Promise<readonly SrvRecord[]>;

  /**
   * Where a port of a host is reached, in order of preference; empty when the name does not exist.
   * @throws Error when DNS gives no answer
   */
  abstract endpoints(host: string, port: number): Promise<readonly Endpoint[]>;
}
