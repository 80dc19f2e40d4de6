import { ownUrl } from '@rookery/http';
import type { ModuleApi } from '@rookery/module-api';
import type { Config } from '@rookery/platform';

/** `urlOf` of the module API, by these settings. */
export const moduleUrls =
  (config: Config): ModuleApi['urlOf'] =>
  (path, query) =>
    ownUrl(config, path.replace(/^\//, ''), query);
