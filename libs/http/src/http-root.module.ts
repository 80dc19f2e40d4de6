import { type DynamicModule, Module, type OnModuleInit, type Type } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, MetadataScanner, ModulesContainer } from '@nestjs/core';
import type { Logger } from '@rookery/platform';
import { RequestAuthenticator } from './access.js';
import { AccessGuard, accessOf } from './access-guard.js';
import type { ForwardingOptions } from './forwarding/forwarder.js';
import { type MatrixFastifyAdapter, MatrixErrorFilter } from './matrix-fastify-adapter.js';
import { RateLimiter } from './rate-limiter.js';
import { WebMounts } from './web-mounts.js';

/** What {@link HttpRootModule} puts around an application. */
export interface HttpRootOptions {
  /** The application; what it exports of `RequestAuthenticator` and `RateLimiter` judges requests. */
  readonly application: NonNullable<DynamicModule['imports']>[number];
  readonly adapter: MatrixFastifyAdapter;
  readonly forwarding: ForwardingOptions | undefined;
  readonly mounts: WebMounts;
  readonly logger: Logger;
}

/** The root of every application: one guard, one error filter, and the paths of web resources, which anybody may be given. */
@Module({})
export class HttpRootModule implements OnModuleInit {
  constructor(private readonly modules: ModulesContainer) {}

  static around({ application, adapter, forwarding, mounts, logger }: HttpRootOptions): DynamicModule {
    return {
      module: HttpRootModule,
      global: true,
      imports: [application],
      providers: [
        { provide: WebMounts, useValue: mounts },
        { provide: APP_FILTER, useValue: new MatrixErrorFilter(adapter) },
        {
          provide: APP_GUARD,
          inject: [
            { token: RequestAuthenticator, optional: true },
            { token: RateLimiter, optional: true },
          ],
          useFactory: (authenticator?: RequestAuthenticator, limiter?: RateLimiter): AccessGuard => {
            if (authenticator === undefined)
              logger.debug('No module provides a RequestAuthenticator; routes with a token will fail');
            return new AccessGuard(authenticator, limiter, forwarding);
          },
        },
      ],
      exports: [WebMounts],
    };
  }

  /** @throws Error when a route does not say who may call it */
  onModuleInit(): void {
    const undeclared = routesWithoutAccess(this.modules);
    if (undeclared.length > 0) throw new Error(`Routes without @Access: ${undeclared.join(', ')}`);
  }
}

/** `Controller.method` of every route that does not say who may call it. */
function routesWithoutAccess(modules: ModulesContainer): string[] {
  const scanner = new MetadataScanner();
  const missing: string[] = [];
  for (const module of modules.values()) {
    for (const { metatype } of module.controllers.values()) {
      const controller = metatype as Type;
      const prototype = controller.prototype as Record<string, object>;
      for (const name of scanner.getAllMethodNames(prototype)) {
        const handler = prototype[name]!;
        if (Reflect.hasMetadata('path', handler) && accessOf(handler, controller) === undefined)
          missing.push(`${controller.name}.${name}`);
      }
    }
  }
  return missing;
}
