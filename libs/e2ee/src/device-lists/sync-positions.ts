import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Port } from '@rookery/platform';
import type { DeviceListPosition } from './device-list.service.js';

/** Reads a token of `/sync`. @throws MatrixError 400 `M_INVALID_PARAM` */
export type SyncTokenReader = (token: string) => DeviceListPosition;

/** What tokens of `/sync` mean for device lists; told by the lib that makes them. */
@Injectable()
export class SyncPositions {
  readonly port = new Port<SyncTokenReader>('sync_positions', 'required');

  /** @throws MatrixError 400 `M_INVALID_PARAM` */
  parse(token: string): DeviceListPosition {
    const { given: read } = this.port;
    if (read === undefined) throw MatrixError.invalidParam('This process gave out no such token');
    return read(token);
  }
}
