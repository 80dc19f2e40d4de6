import { RequestMethod } from '@nestjs/common';
import { MetadataScanner, ModulesContainer } from '@nestjs/core';
import type { AccessOptions } from '@rookery/http';
import type { TestHomeserver } from '@rookery/testing';

/** One endpoint as the running server knows it. */
export interface Route {
  readonly method: string;
  /** Its paths, parameters written `:name`; never empty. */
  readonly paths: readonly string[];
  /** Method and path without version: the same for all its paths. */
  readonly name: string;
  /** What it declares of itself with `@Access`. */
  readonly access: AccessOptions | undefined;
}

type Controller = { readonly name: string; readonly prototype: Record<string, object> };

/** `/_matrix/client/v3/rooms/:roomId/invite` → `/rooms/:roomId/invite`. */
export const withoutVersion = (path: string): string =>
  path.replace(/^\/_matrix\/client\/(?:api\/v1|r0|v\d+|unstable(?:\/[\w-]+\.[^/]+)?)(?=\/)/, '');

/** Every route whose paths begin with one of `prefixes`, sorted by name. What a lib adds is in the list at once. */
export function routesOf(homeserver: TestHomeserver, prefixes: readonly string[]): Route[] {
  const scanner = new MetadataScanner();
  const routes: Route[] = [];
  for (const module of homeserver.server.service(ModulesContainer).values()) {
    for (const { metatype } of module.controllers.values()) {
      const { prototype } = metatype as unknown as Controller;
      for (const handlerName of scanner.getAllMethodNames(prototype)) {
        const handler = prototype[handlerName]!;
        const declared = Reflect.getMetadata('path', handler) as string | string[] | undefined;
        const paths = [declared ?? []].flat().filter((path) => prefixes.some((prefix) => path.startsWith(prefix)));
        if (paths.length === 0) continue;
        const method = RequestMethod[Reflect.getMetadata('method', handler) as RequestMethod] ?? 'GET';
        const access = (Reflect.getMetadata('rookery:access', handler) ??
          Reflect.getMetadata('rookery:access', metatype as object)) as AccessOptions | undefined;
        routes.push({ method, paths, name: `${method} ${withoutVersion(paths[0]!)}`, access });
      }
    }
  }
  return routes.sort((a, b) => (a.name < b.name ? -1 : 1));
}
