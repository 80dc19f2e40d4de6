import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Port } from '@rookery/platform';
import type { ClaimedKeys } from './remote-keys.js';

/** Identity keys by user and device. */
export type ServiceDeviceKeys = Readonly<Record<string, Readonly<Record<string, JsonObject>>>>;

/** How application services are asked for keys of their own users. Neither rejects; who gives no answer is absent. */
export interface ServiceKeySource {
  /**
   * One-time keys for devices that have uploaded none (MSC3983).
   * @param wanted algorithms by user and device
   */
  claim?(wanted: Readonly<Record<string, Readonly<Record<string, string>>>>): Promise<ClaimedKeys>;
  /**
   * Identity keys, which win over those that were uploaded (MSC3984).
   * @param wanted device ids by user; an empty list for all
   */
  query?(wanted: ReadonlyMap<string, readonly string[]>): Promise<ServiceDeviceKeys>;
}

/** Where the application service lib attaches. Without it no service is asked. */
@Injectable()
export class ServiceKeys {
  readonly port = new Port<ServiceKeySource>('appservice_keys', 'optional');

  /** Absent where no service is asked for one-time keys. */
  get claim(): ServiceKeySource['claim'] {
    return this.port.given?.claim;
  }

  /** Absent where no service is asked for identity keys. */
  get query(): ServiceKeySource['query'] {
    return this.port.given?.query;
  }
}
