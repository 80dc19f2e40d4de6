import { type Endpoint, NameResolver, type SrvRecord } from '@rookery/federation-client';

/** Names of a world that a test makes up; at first there are none. */
export class FakeNames extends NameResolver {
  readonly #endpoints = new Map<string, readonly Endpoint[]>();
  readonly #srv = new Map<string, readonly SrvRecord[]>();
  /** What was asked for, in order: `a.test:8448`, or the name of an SRV record. */
  readonly asked: string[] = [];

  /** `host:port` is reached there. */
  host(hostAndPort: string, ...endpoints: readonly Endpoint[]): this {
    this.#endpoints.set(hostAndPort, endpoints);
    return this;
  }

  /** Sets the SRV records of a name. */
  service(name: string, ...records: readonly SrvRecord[]): this {
    this.#srv.set(name, records);
    return this;
  }

  srv(name: string): Promise<readonly SrvRecord[]> {
    this.asked.push(name);
    return Promise.resolve(this.#srv.get(name) ?? []);
  }

  endpoints(host: string, port: number): Promise<readonly Endpoint[]> {
    this.asked.push(`${host}:${port}`);
    return Promise.resolve(this.#endpoints.get(`${host}:${port}`) ?? []);
  }
}
