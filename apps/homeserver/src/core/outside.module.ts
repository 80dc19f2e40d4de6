import { type DynamicModule, Global, Module } from '@nestjs/common';
import { Database } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { NameResolver, OwnKeys, ServerSoftware } from '@rookery/federation-client';
import { OutboundHttp, outboundOptionsOf, RequestProxy } from '@rookery/http';
import { Config, Ids, Metrics } from '@rookery/platform';
import { loadOwnKeys } from '../signing-keys.js';
import { version } from '../version.js';

/** What differs from server to server about how it faces others. */
export interface OutsideOptions {
  /** The way from names of other servers to their addresses. */
  readonly nameResolver: NameResolver;
  /** Whether a missing file of keys is made. */
  readonly mayWriteKeys: boolean;
}

/** Requests to the outside, and as whom this server makes them: its keys and its name. */
@Global()
@Module({})
export class OutsideModule {
  static forRoot({ nameResolver, mayWriteKeys }: OutsideOptions): DynamicModule {
    return {
      module: OutsideModule,
      providers: [
        { provide: NameResolver, useValue: nameResolver },
        {
          provide: OwnKeys,
          // The database first: a server that cannot have it makes no keys.
          inject: [Config, Ids, Database],
          useFactory: (config: Config, ids: Ids) => loadOwnKeys(config, ids, { mayWrite: mayWriteKeys }),
        },
        { provide: SigningKey, inject: [OwnKeys], useFactory: (keys: OwnKeys) => keys.current },
        {
          provide: OutboundHttp,
          inject: [Config, Metrics],
          useFactory: (config: Config, metrics: Metrics) =>
            new OutboundHttp(outboundOptionsOf(config, version, metrics)),
        },
        RequestProxy,
        {
          provide: ServerSoftware,
          inject: [Config, Metrics],
          useFactory: (config: Config, metrics: Metrics) =>
            new ServerSoftware('Rookery', version, outboundOptionsOf(config, version, metrics).userAgent),
        },
      ],
      exports: [NameResolver, OwnKeys, SigningKey, OutboundHttp, RequestProxy, ServerSoftware],
    };
  }
}
