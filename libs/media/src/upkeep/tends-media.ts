import type { Config } from '@rookery/platform';

const mainProcess = 'master';

/** Whether this process is the one that `media_instance_running_background_jobs` names: the main process where it names none. */
export const tendsMedia = (config: Config): boolean =>
  (config.get('media_instance_running_background_jobs') ?? mainProcess) === (config.get('worker_name') ?? mainProcess);
