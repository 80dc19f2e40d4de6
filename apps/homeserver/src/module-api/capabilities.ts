import type { HttpApp } from '@rookery/http';
import type { ModuleCapabilities } from '@rookery/module-host';
import type { PlatformParts } from '../platform.module.js';

/** What the server offers to modules. */
export function createCapabilities(parts: PlatformParts, _http: HttpApp): ModuleCapabilities {
  return { shared: { serverName: parts.config.serverName } } as unknown as ModuleCapabilities;
}
