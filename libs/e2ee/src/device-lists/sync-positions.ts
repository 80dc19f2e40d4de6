import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { type DeviceListPosition, E2eePorts } from '../ports.js';

/** What tokens of `/sync` mean for device lists; told by the lib that makes them. */
@Injectable()
export class SyncPositions {
  constructor(private readonly ports: E2eePorts) {}

  /** @throws MatrixError 400 `M_INVALID_PARAM` */
  parse(token: string): DeviceListPosition {
    const { given: read } = this.ports.syncPositions;
    if (read === undefined) throw MatrixError.invalidParam('This process gave out no such token');
    return read(token);
  }
}
